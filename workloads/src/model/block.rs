//! Blocks: layers of a model that are run in the same way, such as those of a transformer's layer.
//!
//! Layers whose names begin alike up to the first number are a block: `transformer.h.0.ln_1` and
//! `transformer.h.0.mlp.c_fc`. Any other layer is a block by itself.

use std::ops::Range;

use gradwire_protocol::units::Span;

use super::trained::{Model, WeightSplit};

/// Consecutive layers of a model.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ModelBlock {
    /// The beginning that the names of its layers share.
    pub name: String,
    /// Indices of its layers.
    pub layers: Range<u16>,
    /// Elements of its weights.
    pub parameters: u64,
    /// Time of its forward pass.
    pub forward: Span,
    /// Time of its backward pass.
    pub backward: Span,
    /// Its activations; `None` where the source of the model has none.
    pub values: Option<BlockValues>,
}

/// The activations of a block, in elements for one sample.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BlockValues {
    /// Elements that its first layer reads; 0 where they are indices.
    pub reads: u64,
    /// Elements that its last layer writes.
    pub writes: u64,
    /// Elements that its forward pass keeps for its backward pass.
    pub kept: u64,
    /// How its weights can be split.
    pub split: BlockSplit,
}

/// How the weights of a block can be split over devices.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BlockSplit {
    /// Not at all.
    Whole,
    /// One layer, by its outputs.
    Columns,
    /// This many pairs, each of layers by outputs and a layer by inputs, as Megatron-LM splits
    /// attention and the feed-forward part of a transformer's layer.
    Pairs(u32),
}

impl Model {
    /// Returns its blocks in the order of the forward pass.
    pub fn blocks(&self) -> Vec<ModelBlock> {
        let mut blocks: Vec<ModelBlock> = Vec::new();
        for (number, layer) in (0..).zip(&self.layers) {
            let name = beginning(&layer.name);
            if blocks.last().is_none_or(|last| last.name != name) {
                blocks.push(ModelBlock {
                    name: name.to_owned(),
                    layers: number..number,
                    parameters: 0,
                    forward: Span::ZERO,
                    backward: Span::ZERO,
                    values: None,
                });
            }
            let block = blocks.last_mut().expect("one was pushed");
            block.layers.end = number + 1;
            block.forward = block.forward + layer.forward;
        }
        for one in &self.gradients {
            let own = blocks
                .iter_mut()
                .find(|block| block.layers.contains(&one.layer));
            let block = own.expect("every layer is in a block");
            block.parameters += one.parameters;
            block.backward = block.backward + one.backward;
        }
        for block in &mut blocks {
            block.values = self.values(block.layers.clone());
        }
        blocks
    }

    fn values(&self, layers: Range<u16>) -> Option<BlockValues> {
        let layers = &self.layers[usize::from(layers.start)..usize::from(layers.end)];
        let values: Option<Vec<_>> = layers.iter().map(|layer| layer.values).collect();
        let values = values?;
        let pairs = values.iter().filter(|one| one.split == WeightSplit::Rows);
        let split = match (&values[..], pairs.count()) {
            ([one], 0) if one.split == WeightSplit::Columns => BlockSplit::Columns,
            (_, 0) => BlockSplit::Whole,
            (_, pairs) => BlockSplit::Pairs(pairs as u32),
        };
        let last = values.iter().rev().map(|one| one.writes);
        Some(BlockValues {
            reads: values.first().map_or(0, |one| one.reads),
            writes: last.clone().find(|&writes| writes > 0).unwrap_or(0),
            kept: values.iter().map(|one| one.kept).sum(),
            split,
        })
    }
}

/// A name up to its first part that is a number, without a dot behind it; else all of it.
fn beginning(name: &str) -> &str {
    let mut end = 0;
    for part in name.split_inclusive('.') {
        end += part.len();
        let part = part.trim_end_matches('.');
        if part.bytes().all(|byte| byte.is_ascii_digit()) && !part.is_empty() {
            return name[..end].trim_end_matches('.');
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::super::NAMES;
    use super::*;

    fn blocks(name: &str) -> Vec<ModelBlock> {
        Model::named(name).expect("it is one of the names").blocks()
    }

    #[test]
    fn blocks_have_everything_of_their_model() {
        for name in NAMES {
            let (model, blocks) = (Model::named(name).expect("a name"), blocks(name));
            let sum = |of: fn(&ModelBlock) -> Span| {
                blocks.iter().fold(Span::ZERO, |all, block| all + of(block))
            };
            assert_eq!(sum(|block| block.forward), model.forward(), "{name}");
            assert_eq!(sum(|block| block.backward), model.backward(), "{name}");
            let parameters = blocks.iter().map(|block| block.parameters).sum::<u64>();
            assert_eq!(parameters, model.parameters(), "{name}");
            assert!(blocks.len() <= 60, "{name}: {}", blocks.len());
        }
    }

    #[test]
    fn a_layer_of_a_transformer_is_one_block() {
        let names = |name: &str| {
            let blocks = blocks(name).into_iter();
            blocks.map(|block| block.name).collect::<Vec<_>>()
        };
        let gpt2 = names("gpt2");
        assert_eq!(gpt2.len(), 2 + 12 + 1, "{gpt2:?}");
        assert_eq!(gpt2[2], "transformer.h.0");
        assert_eq!(names("vgg16").len(), 16);
        assert_eq!(names("resnet50").len(), 2 + 16 + 1);
        assert_eq!(names("llama-8b").len(), 1 + 32 + 2);
    }

    /// Korthikanti et al. 2022 (arXiv 2205.05198, table 2) count 34 bytes in half precision for
    /// each element of a layer's width, of which 2 are masks of dropout; so 16 elements.
    #[test]
    fn transformers_keep_16_times_their_width() {
        for (name, block, width) in [("gpt2", 5, 768), ("bert-large", 9, 1_024)] {
            let block = blocks(name).remove(block);
            let values = block.values.expect("named models have values");
            assert_eq!(values.kept, 16 * width, "{name}: {}", block.name);
            assert_eq!((values.reads, values.writes), (width, width), "{name}");
            assert_eq!(values.split, BlockSplit::Pairs(2), "{name}");
        }
    }

    #[test]
    fn only_matrices_and_convolutions_are_split() {
        let split = |name: &str, block: usize| {
            let block = blocks(name).swap_remove(block);
            block.values.expect("named models have values").split
        };
        assert_eq!(split("vgg16", 13), BlockSplit::Columns);
        assert_eq!(split("gpt2", 0), BlockSplit::Columns);
        assert_eq!(split("gpt2", 14), BlockSplit::Whole);
        assert_eq!(split("resnet50", 2), BlockSplit::Whole);
    }
}
