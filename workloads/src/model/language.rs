//! Transformers, with names and sizes as Hugging Face's `transformers` has them.
//!
//! The first is PyTorch's `nn.Transformer`: the base model of Vaswani et al. 2017 (table 3), whose
//! one embedding serves both sides and the output (section 3.4). BERT with a head for questions and
//! without a pooler, its vocabulary padded to a multiple of 64, as it was measured. GPT-2 small,
//! whose output matrix is its embedding. Llama 3 8B, of Meta's `config.json`: 32 layers of 4,096, 8
//! heads for keys and values, feed-forward of 14,336.
//!
//! A layer keeps its input; queries, keys and values, the input of a GELU or SiLU, and logits are
//! kept, too. The scores of attention are not: they are computed again, as FlashAttention does.

use super::shape::Architecture;
use super::trained::WeightSplit;

/// Positions of BERT.
const BERT_PLACES: u64 = 512;
const BERT_VOCABULARY: u64 = 30_528;
const GPT2_VOCABULARY: u64 = 50_257;
/// Tokens of the source, and of the target, in a worker's batch of the first transformer: an eighth
/// of 25,000 (section 5.1).
pub(super) const TRANSFORMER_TOKENS: u64 = 3_125;
/// Tokens of a sequence of Llama 3.
pub(super) const LLAMA_TOKENS: u64 = 8_192;

/// The transformer of Vaswani et al., base: 63,084,544 parameters.
///
/// The work of the output, whose matrix is the embedding, counts for the bias before it. For
/// sentences the work of attention itself is negligible.
pub(super) fn transformer() -> Architecture {
    let (layers, width, vocabulary) = (6, 512, 37_000);
    let mut shape = Architecture::default();
    shape.add("embedding.weight".to_owned(), vocabulary * width, 0);
    shape.passes((0, width), WeightSplit::Columns);
    for layer in 0..layers {
        let name = format!("encoder.layers.{layer}");
        transformer_layer(&mut shape, &name, width, &["self_attn"]);
    }
    shape.norm("encoder.norm", width);
    for layer in 0..layers {
        let name = format!("decoder.layers.{layer}");
        transformer_layer(&mut shape, &name, width, &["self_attn", "multihead_attn"]);
    }
    shape.add("decoder.norm.weight".to_owned(), width, 0);
    shape.passes((width, width), WeightSplit::Whole);
    shape.add("decoder.norm.bias".to_owned(), width, vocabulary * width);
    shape.keeps(vocabulary);
    shape
}

fn transformer_layer(shape: &mut Architecture, name: &str, width: u64, attentions: &[&str]) {
    for attention in attentions {
        let name = format!("{name}.{attention}");
        let matrices = 3 * width * width;
        shape.add(format!("{name}.in_proj_weight"), matrices, matrices);
        shape.passes((width, 3 * width), WeightSplit::Columns);
        shape.add(format!("{name}.in_proj_bias"), 3 * width, 0);
        shape.keeps(3 * width);
        shape.linear_of_parts(&format!("{name}.out_proj"), width, width);
    }
    shape.linear(&format!("{name}.linear1"), width, 4 * width);
    shape.linear_of_parts(&format!("{name}.linear2"), 4 * width, width);
    for norm in 1..=attentions.len() + 1 {
        shape.norm(&format!("{name}.norm{norm}"), width);
    }
}

/// BERT with `layers` layers of `width`.
pub(super) fn bert(layers: u64, width: u64) -> Architecture {
    let mut shape = Architecture::default();
    let embeddings = [
        ("word", BERT_VOCABULARY),
        ("position", BERT_PLACES),
        ("token_type", 2),
    ];
    for (what, rows) in embeddings {
        let name = format!("bert.embeddings.{what}_embeddings.weight");
        shape.add(name, rows * width, 0);
        shape.passes((0, width), WeightSplit::Columns);
    }
    shape.norm("bert.embeddings.LayerNorm", width);
    for layer in 0..layers {
        let name = |what: &str| format!("bert.encoder.layer.{layer}.{what}");
        for what in ["query", "key", "value"] {
            shape.linear(&name(&format!("attention.self.{what}")), width, width);
        }
        // All three have the same input, and each has an output that is kept.
        shape.keeps(width);
        shape.linear_of_parts(&name("attention.output.dense"), width, width);
        shape.norm(&name("attention.output.LayerNorm"), width);
        shape.linear(&name("intermediate.dense_act"), width, 4 * width);
        shape.keeps(4 * width);
        shape.linear_of_parts(&name("output.dense"), 4 * width, width);
        shape.norm(&name("output.LayerNorm"), width);
    }
    shape.linear("qa_outputs", width, 2);
    shape
}

/// GPT-2 small: 124,439,808 parameters.
pub(super) fn gpt2() -> Architecture {
    let (layers, width) = (12, 768);
    let mut shape = Architecture::default();
    for (what, rows) in [("wte", GPT2_VOCABULARY), ("wpe", 1_024)] {
        shape.add(format!("transformer.{what}.weight"), rows * width, 0);
        shape.passes((0, width), WeightSplit::Columns);
    }
    for layer in 0..layers {
        let name = |what: &str| format!("transformer.h.{layer}.{what}");
        shape.norm(&name("ln_1"), width);
        shape.linear(&name("attn.c_attn"), width, 3 * width);
        shape.keeps(3 * width);
        shape.linear_of_parts(&name("attn.c_proj"), width, width);
        shape.norm(&name("ln_2"), width);
        shape.linear(&name("mlp.c_fc"), width, 4 * width);
        shape.keeps(4 * width);
        shape.linear_of_parts(&name("mlp.c_proj"), 4 * width, width);
    }
    shape.norm("transformer.ln_f", width);
    shape.keeps(GPT2_VOCABULARY);
    shape
}

/// Llama 3 8B: 8,030,261,248 parameters.
///
/// The work of attention itself, half a square of tokens, twice, counts for the matrix after it.
pub(super) fn llama_8b() -> Architecture {
    let (layers, width, keys, inner, vocabulary) = (32, 4_096, 1_024, 14_336, 128_256);
    let mut shape = Architecture::default();
    let embedding = "model.embed_tokens.weight".to_owned();
    shape.add(embedding, vocabulary * width, 0);
    shape.passes((0, width), WeightSplit::Columns);
    for layer in 0..layers {
        let name = |what: &str| format!("model.layers.{layer}.{what}.weight");
        let norm = |shape: &mut Architecture, what| {
            shape.add(name(what), width, 0);
            shape.passes((width, width), WeightSplit::Whole);
        };
        norm(&mut shape, "input_layernorm");
        for (what, from, to) in [("q", width, width), ("k", 0, keys), ("v", 0, keys)] {
            let work = width * to;
            shape.add(name(&format!("self_attn.{what}_proj")), work, work);
            shape.passes((from, to), WeightSplit::Columns);
            shape.keeps(to);
        }
        let (matrix, attention) = (width * width, LLAMA_TOKENS * width);
        shape.add(name("self_attn.o_proj"), matrix, matrix + attention);
        shape.passes((width, width), WeightSplit::Rows);
        norm(&mut shape, "post_attention_layernorm");
        for (what, from) in [("gate", width), ("up", 0)] {
            let matrix = width * inner;
            shape.add(name(&format!("mlp.{what}_proj")), matrix, matrix);
            shape.passes((from, inner), WeightSplit::Columns);
            shape.keeps(inner);
        }
        shape.add(name("mlp.down_proj"), width * inner, width * inner);
        shape.passes((inner, width), WeightSplit::Rows);
    }
    shape.add("model.norm.weight".to_owned(), width, 0);
    shape.passes((width, width), WeightSplit::Whole);
    let head = vocabulary * width;
    shape.add("lm_head.weight".to_owned(), head, head);
    shape.passes((width, vocabulary), WeightSplit::Columns);
    shape.keeps(vocabulary);
    shape
}
