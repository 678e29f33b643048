//! Training in which each block of a model has its own way: the steps of a plan.
//!
//! A block's parts (`block_run`) follow one another, and so do blocks. The exchange of gradients
//! follows the backward pass of its block, one after another, while the pass goes on
//! ([`Overlap::Backward`]), or all follow the pass ([`Overlap::Off`]).

use std::fmt;
use std::str::FromStr;

use gradwire_protocol::units::{ByteCount, Layer};

use super::block_run::{
    BlockPart, BlockRun, BlockStrategy, DeviceShare, KeptActivations, WeightSpread,
};
use super::exchange::{Overlap, Training, Update};
use super::tasks::ProgramTasks;
use super::workers::{TrainingPrograms, WorkerSteps};
use crate::model::ModelBlock;
use crate::workload::{Task, Work, Workload};

/// Most blocks of a plan: as many as layers of a model.
const BLOCKS_MAX: usize = crate::model::LAYERS_MAX;

/// The way of each block of a model. In one word: `2d-11tr-s` is two blocks data parallel, eleven
/// tensor parallel that recompute, one sharded.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct MixedPlan {
    /// By block, in the order of the forward pass.
    pub blocks: Vec<BlockStrategy>,
}

/// Why a text is no plan, or a plan does not suit a model.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MixedPlanError {
    /// A part of it has another form.
    #[error(
        "`{part}`: a plan has numbers of blocks and their ways, such as 2d-11tr-s; ways are d \
         (data parallel), s (sharded), t (tensor parallel), and dr, sr, tr, which recompute"
    )]
    Form {
        /// The part.
        part: String,
    },
    /// More or fewer blocks than the model has.
    #[error("it has {given} blocks, and {model} has {needed}")]
    Blocks {
        /// Blocks of the plan.
        given: usize,
        /// The model.
        model: String,
        /// Blocks of the model.
        needed: usize,
    },
    /// A block that cannot be run in this way.
    #[error(
        "block {number} ({name}) cannot be {way}: t needs matrices, and r needs activations \
         besides the block's input"
    )]
    Way {
        /// Number of the block, from 1.
        number: usize,
        /// Its name.
        name: String,
        /// The way.
        way: BlockStrategy,
    },
}

impl MixedPlan {
    /// Checks that each block of a model can be run in its way.
    ///
    /// # Errors
    /// [`MixedPlanError`] names the block.
    pub fn check(&self, model: &str, blocks: &[ModelBlock]) -> Result<(), MixedPlanError> {
        if self.blocks.len() != blocks.len() {
            return Err(MixedPlanError::Blocks {
                given: self.blocks.len(),
                model: model.to_owned(),
                needed: blocks.len(),
            });
        }
        let any = DeviceShare {
            devices: 1,
            samples: 1,
        };
        let mut pairs = self.blocks.iter().zip(blocks).zip(1..);
        let wrong = pairs.find(|((way, block), _)| BlockRun::new(block, **way, any).is_none());
        wrong.map_or(Ok(()), |((&way, block), number)| {
            let name = block.name.clone();
            Err(MixedPlanError::Way { number, name, way })
        })
    }

    /// Returns the blocks of a model, each in its way; `None` if one cannot be run so.
    pub fn runs<'a>(
        &self,
        blocks: &'a [ModelBlock],
        share: DeviceShare,
    ) -> Option<Vec<BlockRun<'a>>> {
        let pairs = blocks.iter().zip(&self.blocks);
        let runs = pairs.map(|(block, &way)| BlockRun::new(block, way, share));
        runs.collect()
    }
}

impl fmt::Display for BlockStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.spread {
            WeightSpread::Data => "d",
            WeightSpread::Sharded => "s",
            WeightSpread::Tensor => "t",
        })?;
        match self.keeps {
            KeptActivations::All => Ok(()),
            KeptActivations::Input => f.write_str("r"),
        }
    }
}

impl fmt::Display for MixedPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, run) in self.blocks.chunk_by(|a, b| a == b).enumerate() {
            let separator = if number > 0 { "-" } else { "" };
            write!(f, "{separator}{}{}", run.len(), run[0])?;
        }
        Ok(())
    }
}

impl FromStr for MixedPlan {
    type Err = MixedPlanError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut blocks = Vec::new();
        for part in text.trim().split('-') {
            let wrong = || MixedPlanError::Form {
                part: part.to_owned(),
            };
            let at = part.find(|letter: char| !letter.is_ascii_digit());
            let (count, way) = part.split_at(at.ok_or_else(wrong)?);
            let count = match count {
                "" => 1,
                count => count.parse().map_err(|_| wrong())?,
            };
            let way = BlockStrategy::all().find(|one| one.to_string() == way);
            let way = way.ok_or_else(wrong)?;
            if !(1..=BLOCKS_MAX - blocks.len()).contains(&count) {
                return Err(wrong());
            }
            blocks.resize(blocks.len() + count, way);
        }
        Ok(Self { blocks })
    }
}

/// Makes the workload of steps whose model is scaled already.
pub(super) fn workload(training: &Training, plan: &MixedPlan, share: DeviceShare) -> Workload {
    let blocks = training.model.blocks();
    let runs = plan.runs(&blocks, share);
    let runs = runs.expect("a plan is checked before");
    let mut programs = TrainingPrograms::new(training);
    for host in 0..share.devices {
        let steps = MixedSteps {
            training,
            blocks: &blocks,
            runs: &runs,
            tasks: programs.tasks(host, share.devices),
            last: None,
            updates: vec![None; runs.len()],
        };
        programs.add_worker(host, steps);
    }
    programs.workload(vec![(0..share.devices).collect()])
}

/// The program of one device so far.
struct MixedSteps<'a> {
    training: &'a Training,
    blocks: &'a [ModelBlock],
    runs: &'a [BlockRun<'a>],
    tasks: ProgramTasks,
    /// The last part of the pass.
    last: Option<u32>,
    /// By block, the task that brings its update.
    updates: Vec<Option<u32>>,
}

/// The place of a part: its block, the step, and a word for its name.
#[derive(Clone, Copy)]
struct PartPlace {
    block: usize,
    step: u32,
    word: &'static str,
}

impl WorkerSteps for MixedSteps<'_> {
    fn tasks(&mut self) -> &mut ProgramTasks {
        &mut self.tasks
    }

    fn forward(&mut self, step: u32) -> u32 {
        let word = "forward";
        for block in 0..self.runs.len() {
            let place = PartPlace { block, step, word };
            let mut awaited: Vec<u32> = match (self.training.update, block) {
                (Update::All, 0) => self.updates.iter_mut().filter_map(Option::take).collect(),
                _ => self.updates[block].take().into_iter().collect(),
            };
            for part in self.runs[block].forward() {
                let after = std::mem::take(&mut awaited);
                self.last = Some(self.part(place, part, self.after_last(after)));
            }
            self.change(place);
        }
        self.last.expect("a model has layers")
    }

    fn backward(&mut self, step: u32) {
        let word = "backward";
        let mut updated = None;
        for block in (0..self.runs.len()).rev() {
            let place = PartPlace { block, step, word };
            self.change(place);
            for part in self.runs[block].backward() {
                self.last = Some(self.part(place, part, self.after_last(Vec::new())));
            }
            if self.training.overlap == Overlap::Backward {
                self.update(block, step, &mut updated);
            }
        }
        if self.training.overlap == Overlap::Off {
            for block in (0..self.runs.len()).rev() {
                self.update(block, step, &mut updated);
            }
        }
    }
}

impl MixedSteps<'_> {
    /// Adds the exchange of a block's gradients after the one before.
    fn update(&mut self, block: usize, step: u32, before: &mut Option<u32>) {
        if let Some(part) = self.runs[block].update() {
            let word = "update";
            let after = self.after_last(before.iter().copied().collect());
            let added = self.part(PartPlace { block, step, word }, part, after);
            self.updates[block] = Some(added);
            *before = Some(added);
        }
    }

    /// Adds the change of layout behind a block, if there is one.
    fn change(&mut self, place: PartPlace) {
        let run = &self.runs[place.block];
        if let Some(part) = run.change(self.runs.get(place.block + 1)) {
            self.last = Some(self.part(place, part, self.after_last(Vec::new())));
        }
    }

    fn after_last(&self, mut others: Vec<u32>) -> Vec<u32> {
        others.extend(self.last.filter(|last| !others.contains(last)));
        others
    }

    fn part(&mut self, place: PartPlace, part: BlockPart, after: Vec<u32>) -> u32 {
        let block = &self.blocks[place.block];
        let name = format!("{} {}", place.word, block.name);
        match part {
            BlockPart::Compute(span) => self.tasks.compute(name, span, after, place.step),
            BlockPart::Exchange(kind, bytes) => {
                let work = Work::Collective {
                    kind,
                    group: 0,
                    bytes: ByteCount::new(bytes),
                    layers: vec![(0, Layer(block.layers.start))],
                };
                let name = format!("{kind} {name}");
                self.tasks.add(Task::new(name, work, after), place.step)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;

    #[test]
    fn plans_are_read_as_they_are_written() {
        for text in ["2d-11tr-1s", "1dr", "4sr-4t-1d"] {
            let plan: MixedPlan = text.parse().expect("it is a plan");
            assert_eq!(plan.to_string(), text);
        }
        let plan: MixedPlan = "d-s".parse().expect("one block needs no number");
        assert_eq!(plan.to_string(), "1d-1s");
        for wrong in [
            "",
            "d-",
            "3",
            "0d",
            "2x",
            "2rt",
            "99999999d",
            "4000d-97s",
            "2dd",
        ] {
            let error = wrong.parse::<MixedPlan>().expect_err(wrong).to_string();
            assert!(error.contains("such as 2d-11tr-s"), "{error}");
        }
    }

    #[test]
    fn plans_that_do_not_suit_a_model_name_the_block() {
        let blocks = Model::named("gpt2").expect("a name").blocks();
        let check = |text: &str| {
            let plan: MixedPlan = text.parse().expect("it is a plan");
            plan.check("gpt2", &blocks)
                .map_err(|error| error.to_string())
        };
        assert_eq!(check("2t-12tr-1s"), Ok(()));
        let short = check("12t").expect_err("it is too short");
        assert_eq!(short, "it has 12 blocks, and gpt2 has 15");
        let norm = check("14d-1t").expect_err("a norm is not split");
        assert!(
            norm.starts_with("block 15 (transformer.ln_f) cannot be t: "),
            "{norm}"
        );
    }
}
