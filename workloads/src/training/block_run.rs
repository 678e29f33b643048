//! One block of a model on several devices in one of the ways of a plan: what each device computes,
//! what it exchanges, and what it keeps in memory.
//!
//! Every device has the same number of samples of a step, and all do the same. With N devices and
//! weights of W bytes:
//!
//! ```text
//! data      all weights on each device              backward: all-reduce W
//! sharded   an N-th of the weights (ZeRO-3, FSDP)   forward: all-gather W; backward: all-gather W,
//!                                                   reduce-scatter W
//! tensor    an N-th of the weights, all samples     per matrix or pair, of the activations of all
//!                                                   samples: forward: all-gather; backward:
//!                                                   all-gather, reduce-scatter; behind a pair a
//!                                                   reduce-scatter, and an all-gather back
//! ```
//!
//! Tensor parallelism is that of Megatron-LM (Shoeybi et al. 2019, arXiv 1909.08053) with its
//! sequence parallelism (Korthikanti et al. 2022, arXiv 2205.05198): between blocks a device has
//! the activations of its own samples, or, behind a single matrix, its own features of all samples;
//! inputs are gathered again for the backward pass and not kept. A split block takes as long as a
//! whole one with its own samples: N times the samples, an N-th of the work.
//!
//! Recomputing (Chen et al. 2016, arXiv 1604.06174) keeps a block's input only and runs its forward
//! pass once more, exchanges included. An update takes no time.

use gradwire_protocol::units::Span;

use crate::model::{BlockSplit, BlockValues, ELEMENT_BYTES, ModelBlock};
use crate::workload::CollectiveKind;

/// Bytes of weight, gradient and both moments of Adam per parameter, each of 32 bits: 16 in all, as
/// many as with mixed precision (Rajbhandari et al., ZeRO, SC 2020, section 3.1).
pub const STATE_BYTES: u64 = 4 * ELEMENT_BYTES;

/// How a block is run.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct BlockStrategy {
    /// How its weights are spread over devices.
    pub spread: WeightSpread,
    /// What its forward pass keeps.
    pub keeps: KeptActivations,
}

/// How the weights of a block are spread over devices.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum WeightSpread {
    /// Data parallel: on every device.
    Data,
    /// A part on each device, gathered where it is needed: ZeRO-3, FSDP.
    Sharded,
    /// Tensor parallel: a part on each device, which computes that part of all samples.
    Tensor,
}

/// What the forward pass of a block keeps for its backward pass.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum KeptActivations {
    /// Everything that is needed.
    All,
    /// The block's input; the rest is computed again.
    Input,
}

/// The devices, and the part of a step that each has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DeviceShare {
    /// Number of devices.
    pub devices: u32,
    /// Samples, images or tokens, of each.
    pub samples: u32,
}

/// How activations lie on devices.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ActivationLayout {
    /// A device has all features of its own samples.
    Samples,
    /// A device has some features of all samples.
    Features,
}

/// A part of a block's work; the parts follow one another.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BlockPart {
    /// Computes for so long.
    Compute(Span),
    /// Exchanges a tensor of this many bytes with all devices; bytes as those of
    /// [`Work::Collective`](crate::workload::Work::Collective).
    Exchange(CollectiveKind, u64),
}

/// Bytes on a device.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BlockMemory {
    /// Weights, gradients and moments, during the whole step.
    pub states: u64,
    /// Activations that the forward pass keeps, here counted for the whole step.
    pub activations: u64,
    /// What the block needs only while it runs: gathered weights and their gradients, gathered
    /// activations and their gradients, or what is computed again.
    pub peak: u64,
}

/// A block in one of the ways that suit it.
#[derive(Clone, Copy, Debug)]
pub struct BlockRun<'a> {
    block: &'a ModelBlock,
    strategy: BlockStrategy,
    share: DeviceShare,
}

impl BlockStrategy {
    /// All of them: first without, then with recomputing.
    pub fn all() -> impl Iterator<Item = Self> {
        let keeps = [KeptActivations::All, KeptActivations::Input];
        keeps.into_iter().flat_map(|keeps| {
            let spreads = [
                WeightSpread::Data,
                WeightSpread::Sharded,
                WeightSpread::Tensor,
            ];
            spreads.map(|spread| Self { spread, keeps })
        })
    }
}

impl<'a> BlockRun<'a> {
    /// Returns a block in a way, or `None` if that way does not suit it: it cannot be split, it
    /// has nothing but its input to keep, or its activations are not known.
    pub fn new(block: &'a ModelBlock, strategy: BlockStrategy, share: DeviceShare) -> Option<Self> {
        let values = block.values.as_ref();
        let is_split = values.is_some_and(|values| values.split != BlockSplit::Whole);
        let has_inner = values.is_some_and(|values| values.kept > values.reads);
        let suits = (is_split || strategy.spread != WeightSpread::Tensor)
            && (has_inner || strategy.keeps == KeptActivations::All);
        suits.then_some(Self {
            block,
            strategy,
            share,
        })
    }

    /// Returns its way.
    pub fn strategy(&self) -> BlockStrategy {
        self.strategy
    }

    /// Returns the layout that it takes; `None` takes any.
    pub fn takes(&self) -> Option<ActivationLayout> {
        (!self.is_column()).then_some(ActivationLayout::Samples)
    }

    /// Returns the layout that it gives.
    pub fn gives(&self) -> ActivationLayout {
        match self.is_column() {
            true => ActivationLayout::Features,
            false => ActivationLayout::Samples,
        }
    }

    /// Returns its forward pass.
    pub fn forward(&self) -> Vec<BlockPart> {
        let span = self.block.forward;
        match self.strategy.spread {
            WeightSpread::Data => vec![BlockPart::Compute(span)],
            WeightSpread::Sharded => vec![self.gathered_weights(), BlockPart::Compute(span)],
            WeightSpread::Tensor => self.tensor(|inputs, outputs, times| {
                let after = outputs.map(scattered);
                [Some(gathered(inputs)), Some(part_of(span, times)), after]
            }),
        }
    }

    /// Returns its backward pass, without the exchange of gradients.
    pub fn backward(&self) -> Vec<BlockPart> {
        let span = self.block.backward;
        let again = match self.strategy.keeps {
            KeptActivations::All => Vec::new(),
            KeptActivations::Input => self.forward(),
        };
        let own = match (self.strategy.spread, self.strategy.keeps) {
            (WeightSpread::Data, _) | (WeightSpread::Sharded, KeptActivations::Input) => {
                vec![BlockPart::Compute(span)]
            }
            (WeightSpread::Sharded, KeptActivations::All) => {
                vec![self.gathered_weights(), BlockPart::Compute(span)]
            }
            (WeightSpread::Tensor, _) => self.tensor(|inputs, outputs, times| {
                let before = outputs.map(gathered);
                let [again, sum] = [gathered(inputs), scattered(inputs)];
                [before, Some(again), Some(part_of(span, times)), Some(sum)]
            }),
        };
        again.into_iter().chain(own).collect()
    }

    /// Returns the exchange of its gradients, if there is one.
    pub fn update(&self) -> Option<BlockPart> {
        let kind = match self.strategy.spread {
            WeightSpread::Data => CollectiveKind::AllReduce,
            WeightSpread::Sharded => CollectiveKind::ReduceScatter,
            WeightSpread::Tensor => return None,
        };
        let bytes = self.block.parameters * ELEMENT_BYTES;
        (bytes > 0).then_some(BlockPart::Exchange(kind, bytes))
    }

    /// Returns the change of layout between this block and the one behind it, if there is one; in
    /// the backward pass it is undone by the same exchange. `None` behind the last block, where the
    /// loss is computed from samples.
    pub fn change(&self, next: Option<&Self>) -> Option<BlockPart> {
        let takes = match next {
            Some(next) => next.takes(),
            None => Some(ActivationLayout::Samples),
        };
        let differs = takes.is_some_and(|takes| takes != self.gives());
        differs.then(|| layout_change(self.block, self.share))
    }

    /// Returns the memory that it takes on a device.
    pub fn memory(&self) -> BlockMemory {
        let weights = self.block.parameters * ELEMENT_BYTES;
        let states = self.block.parameters * STATE_BYTES;
        let (kept, input) = self.block.values.map_or((0, 0), |values| {
            (self.bytes(values.kept), self.bytes(values.reads))
        });
        let states = match self.strategy.spread {
            WeightSpread::Data => states,
            _ => states.div_ceil(u64::from(self.share.devices)),
        };
        let gathered = match self.strategy.spread {
            WeightSpread::Data => 0,
            WeightSpread::Sharded => 2 * weights,
            WeightSpread::Tensor => 2 * input * u64::from(self.share.devices),
        };
        let (activations, again) = match self.strategy.keeps {
            KeptActivations::All => (kept, 0),
            KeptActivations::Input => (input, kept - input),
        };
        BlockMemory {
            states,
            activations,
            peak: gathered + again,
        }
    }

    fn is_column(&self) -> bool {
        let values = self.block.values.as_ref();
        self.strategy.spread == WeightSpread::Tensor
            && values.is_some_and(|values| values.split == BlockSplit::Columns)
    }

    /// Bytes of the activations of a device's own samples.
    fn bytes(&self, elements: u64) -> u64 {
        u64::from(self.share.samples) * elements * ELEMENT_BYTES
    }

    fn gathered_weights(&self) -> BlockPart {
        gathered(self.block.parameters * ELEMENT_BYTES)
    }

    /// Returns the parts of all matrices or pairs: of the bytes of the inputs of all samples, those
    /// of the outputs if they are summed, and the number of pairs. Parts without bytes are left
    /// out.
    fn tensor<const PARTS: usize>(
        &self,
        parts: impl Fn(u64, Option<u64>, u32) -> [Option<BlockPart>; PARTS],
    ) -> Vec<BlockPart> {
        let BlockValues {
            reads,
            writes,
            split,
            ..
        } = self.block.values.expect("a split block has values");
        let all = |elements| self.bytes(elements) * u64::from(self.share.devices);
        let (outputs, times) = match split {
            BlockSplit::Pairs(pairs) => (Some(all(writes)), pairs),
            _ => (None, 1),
        };
        let once = parts(all(reads), outputs, times).into_iter().flatten();
        let once = once.filter(|part| !matches!(part, BlockPart::Exchange(_, 0)));
        let once: Vec<BlockPart> = once.collect();
        once.repeat(times as usize)
    }
}

/// Returns the exchange that gives the outputs of a block another layout.
pub fn layout_change(block: &ModelBlock, share: DeviceShare) -> BlockPart {
    let writes = block.values.map_or(0, |values| values.writes);
    let bytes = u64::from(share.samples) * writes * ELEMENT_BYTES;
    BlockPart::Exchange(CollectiveKind::AllToAll, bytes)
}

fn gathered(bytes: u64) -> BlockPart {
    BlockPart::Exchange(CollectiveKind::AllGather, bytes)
}

fn scattered(bytes: u64) -> BlockPart {
    BlockPart::Exchange(CollectiveKind::ReduceScatter, bytes)
}

fn part_of(span: Span, times: u32) -> BlockPart {
    BlockPart::Compute(span.divided(u64::from(times)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;

    const SHARE: DeviceShare = DeviceShare {
        devices: 8,
        samples: 32,
    };

    fn way(spread: WeightSpread, keeps: KeptActivations) -> BlockStrategy {
        BlockStrategy { spread, keeps }
    }

    fn block(model: &str, number: usize) -> ModelBlock {
        let model = Model::named(model).expect("it is one of the names");
        model.blocks().swap_remove(number)
    }

    fn exchanged(parts: &[BlockPart]) -> Vec<(CollectiveKind, u64)> {
        let parts = parts.iter().filter_map(|part| match *part {
            BlockPart::Exchange(kind, bytes) => Some((kind, bytes)),
            BlockPart::Compute(_) => None,
        });
        parts.collect()
    }

    #[test]
    fn sharded_weights_are_gathered_twice_and_scattered_once() {
        let block = block("vgg16", 13);
        let all = way(WeightSpread::Sharded, KeptActivations::All);
        let run = BlockRun::new(&block, all, SHARE).expect("any block can be sharded");
        let weights = block.parameters * 4;
        assert_eq!(
            exchanged(&run.forward()),
            [(CollectiveKind::AllGather, weights)]
        );
        assert_eq!(
            exchanged(&run.backward()),
            [(CollectiveKind::AllGather, weights)]
        );
        let update = BlockPart::Exchange(CollectiveKind::ReduceScatter, weights);
        assert_eq!(run.update(), Some(update));
        let memory = run.memory();
        assert_eq!(memory.states, block.parameters * 16 / 8);
        assert_eq!(memory.peak, 2 * weights);
    }

    #[test]
    fn a_split_pair_moves_four_times_its_activations_forward() {
        let block = block("gpt2", 5);
        let all = way(WeightSpread::Tensor, KeptActivations::All);
        let run = BlockRun::new(&block, all, SHARE).expect("it can be split");
        let bytes = 8 * 32 * 768 * 4;
        let [gather, scatter] = [CollectiveKind::AllGather, CollectiveKind::ReduceScatter];
        let pair = [(gather, bytes), (scatter, bytes)];
        assert_eq!(exchanged(&run.forward()), pair.repeat(2));
        let back = [(gather, bytes), (gather, bytes), (scatter, bytes)];
        assert_eq!(exchanged(&run.backward()), back.repeat(2));
        assert_eq!(run.update(), None);
        assert_eq!(
            (run.takes(), run.gives()),
            (Some(ActivationLayout::Samples), ActivationLayout::Samples)
        );
    }

    #[test]
    fn layouts_change_only_behind_a_split_matrix() {
        let (first, second) = (block("vgg16", 13), block("vgg16", 14));
        let run = |block, spread| {
            BlockRun::new(block, way(spread, KeptActivations::All), SHARE).expect("it suits")
        };
        let split = run(&first, WeightSpread::Tensor);
        let change = layout_change(&first, SHARE);
        assert_eq!(
            change,
            BlockPart::Exchange(CollectiveKind::AllToAll, 32 * 4096 * 4)
        );
        assert_eq!(
            split.change(Some(&run(&second, WeightSpread::Data))),
            Some(change)
        );
        assert_eq!(
            split.change(Some(&run(&second, WeightSpread::Tensor))),
            None
        );
        assert_eq!(split.change(None), Some(change));
        assert_eq!(run(&first, WeightSpread::Data).change(Some(&split)), None);
    }

    #[test]
    fn recomputing_moves_activations_to_the_peak() {
        let block = block("gpt2", 5);
        let memory = |keeps| {
            let run = BlockRun::new(&block, way(WeightSpread::Data, keeps), SHARE);
            run.expect("it suits").memory()
        };
        let (all, input) = (memory(KeptActivations::All), memory(KeptActivations::Input));
        assert_eq!(all.activations, 16 * 768 * 32 * 4);
        assert_eq!(
            (input.activations, input.peak),
            (all.activations / 16, all.activations / 16 * 15)
        );
        let run = BlockRun::new(
            &block,
            way(WeightSpread::Data, KeptActivations::Input),
            SHARE,
        );
        let computes = [block.forward, block.backward].map(BlockPart::Compute);
        assert_eq!(run.expect("it suits").backward(), computes);
    }

    #[test]
    fn ways_that_do_not_suit_a_block_are_left_out() {
        let suiting = |block: &ModelBlock| {
            let ways = BlockStrategy::all();
            ways.filter(|&way| BlockRun::new(block, way, SHARE).is_some())
                .count()
        };
        assert_eq!(suiting(&block("gpt2", 5)), 6);
        // A norm has no columns, and a matrix keeps nothing but its input.
        assert_eq!(suiting(&block("resnet50", 0)), 3);
        let table = "layer,parameters,forward_ns,backward_ns\na,10,1,1\n";
        let table = Model::from_csv("table", table).expect("it is a table");
        assert_eq!(suiting(&table.blocks()[0]), 2);
    }
}
