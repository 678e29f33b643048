//! Transformers, with names and sizes as Hugging Face's `transformers` has them.
//!
//! The first is PyTorch's `nn.Transformer`: the base model of Vaswani et al. 2017 (table 3), whose
//! one embedding serves both sides and the output (section 3.4). BERT with a head for questions and
//! without a pooler, its vocabulary padded to a multiple of 64, as it was measured. GPT-2 small,
//! whose output matrix is its embedding. Llama 3 8B, of Meta's `config.json`: 32 layers of 4,096, 8
//! heads for keys and values, feed-forward of 14,336.

use super::shape::Architecture;

/// Positions of BERT.
const BERT_PLACES: u64 = 512;
const BERT_VOCABULARY: u64 = 30_528;
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
    shape.add("decoder.norm.bias".to_owned(), width, vocabulary * width);
    shape
}

fn transformer_layer(shape: &mut Architecture, name: &str, width: u64, attentions: &[&str]) {
    for attention in attentions {
        let name = format!("{name}.{attention}");
        let matrices = 3 * width * width;
        shape.add(format!("{name}.in_proj_weight"), matrices, matrices);
        shape.add(format!("{name}.in_proj_bias"), 3 * width, 0);
        shape.linear(&format!("{name}.out_proj"), width, width);
    }
    shape.linear(&format!("{name}.linear1"), width, 4 * width);
    shape.linear(&format!("{name}.linear2"), 4 * width, width);
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
    }
    shape.norm("bert.embeddings.LayerNorm", width);
    for layer in 0..layers {
        let name = |what: &str| format!("bert.encoder.layer.{layer}.{what}");
        for what in ["query", "key", "value"] {
            shape.linear(&name(&format!("attention.self.{what}")), width, width);
        }
        shape.linear(&name("attention.output.dense"), width, width);
        shape.norm(&name("attention.output.LayerNorm"), width);
        shape.linear(&name("intermediate.dense_act"), width, 4 * width);
        shape.linear(&name("output.dense"), 4 * width, width);
        shape.norm(&name("output.LayerNorm"), width);
    }
    shape.linear("qa_outputs", width, 2);
    shape
}

/// GPT-2 small: 124,439,808 parameters.
pub(super) fn gpt2() -> Architecture {
    let (layers, width) = (12, 768);
    let mut shape = Architecture::default();
    shape.add("transformer.wte.weight".to_owned(), 50_257 * width, 0);
    shape.add("transformer.wpe.weight".to_owned(), 1_024 * width, 0);
    for layer in 0..layers {
        let name = |what: &str| format!("transformer.h.{layer}.{what}");
        shape.norm(&name("ln_1"), width);
        shape.linear(&name("attn.c_attn"), width, 3 * width);
        shape.linear(&name("attn.c_proj"), width, width);
        shape.norm(&name("ln_2"), width);
        shape.linear(&name("mlp.c_fc"), width, 4 * width);
        shape.linear(&name("mlp.c_proj"), 4 * width, width);
    }
    shape.norm("transformer.ln_f", width);
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
    for layer in 0..layers {
        let name = |what: &str| format!("model.layers.{layer}.{what}.weight");
        shape.add(name("input_layernorm"), width, 0);
        for (what, from, to, beside) in [
            ("self_attn.q_proj", width, width, 0),
            ("self_attn.k_proj", width, keys, 0),
            ("self_attn.v_proj", width, keys, 0),
            ("self_attn.o_proj", width, width, LLAMA_TOKENS * width),
        ] {
            shape.add(name(what), from * to, from * to + beside);
        }
        shape.add(name("post_attention_layernorm"), width, 0);
        for what in ["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"] {
            shape.add(name(what), width * inner, width * inner);
        }
    }
    shape.add("model.norm.weight".to_owned(), width, 0);
    let head = vocabulary * width;
    shape.add("lm_head.weight".to_owned(), head, head);
    shape
}
