//! The four axes of distributed training, and the cells that they span.
//!
//! The axes are those of Langer et al., "Distributed Training of Deep Learning Models: A Taxonomic
//! Perspective" (TPDS 2020), for data parallelism, and loss as one more. [`TrainingCell::legality`]
//! is the only place that says which cells make sense.

use serde::Serialize;
use strum::{IntoStaticStr, VariantArray};

/// The place of the model.
#[derive(Clone, Copy, Debug, Eq, IntoStaticStr, Ord, PartialEq, PartialOrd, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum ModelPlace {
    /// Servers have it, and workers send them gradients.
    Servers,
    /// Every worker has the same one, and all add the same sum of gradients.
    AllReduce,
    /// Every worker has its own, and partners average theirs.
    Gossip,
}

/// The updates that a worker waits for.
#[derive(Clone, Copy, Debug, Eq, IntoStaticStr, Ord, PartialEq, PartialOrd, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Timing {
    /// All of the step before.
    Synchronous,
    /// All but those of the last steps.
    BoundedStale,
    /// Those that are there.
    Asynchronous,
}

/// The way of the bytes.
#[derive(Clone, Copy, Debug, Eq, IntoStaticStr, Ord, PartialEq, PartialOrd, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum ExchangePattern {
    /// Straight to the host that adds or averages.
    Star,
    /// Between neighbours in a ring.
    Ring,
    /// Between hosts at distances 1, 2, 4 and so on.
    HalvingDoubling,
    /// Within teams first, then between their leaders.
    Hierarchical,
    /// To a switch that adds.
    InNetwork,
}

/// Whether values may be missing.
#[derive(Clone, Copy, Debug, Eq, IntoStaticStr, Ord, PartialEq, PartialOrd, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum LossBound {
    /// None may be: every lost packet is sent again.
    Lossless,
    /// A share of each message may be.
    Bounded,
}

/// A way to train.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct TrainingCell {
    /// The place of the model.
    #[serde(serialize_with = "named")]
    pub architecture: ModelPlace,
    /// The updates that a worker waits for.
    #[serde(serialize_with = "named")]
    pub timing: Timing,
    /// The way of the bytes.
    #[serde(serialize_with = "named")]
    pub pattern: ExchangePattern,
    /// Whether values may be missing.
    #[serde(serialize_with = "named")]
    pub loss: LossBound,
}

fn named<A, S>(axis: &A, to: S) -> Result<S::Ok, S::Error>
where
    A: Copy + Into<&'static str>,
    S: serde::Serializer,
{
    to.serialize_str((*axis).into())
}

impl TrainingCell {
    /// The cell that all others are compared with.
    pub const REFERENCE: Self = Self {
        architecture: ModelPlace::AllReduce,
        timing: Timing::Synchronous,
        pattern: ExchangePattern::Star,
        loss: LossBound::Lossless,
    };

    /// All cells, legal or not, in the order of the axes.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for &architecture in ModelPlace::VARIANTS {
            for &timing in Timing::VARIANTS {
                for &pattern in ExchangePattern::VARIANTS {
                    for &loss in LossBound::VARIANTS {
                        all.push(Self {
                            architecture,
                            timing,
                            pattern,
                            loss,
                        });
                    }
                }
            }
        }
        all
    }

    /// Its name: its place on each axis.
    pub fn name(self) -> String {
        let architecture: &str = self.architecture.into();
        let (timing, pattern): (&str, &str) = (self.timing.into(), self.pattern.into());
        let loss: &str = self.loss.into();
        format!("{architecture} {timing} {pattern} {loss}")
    }

    /// Whether the cell makes sense here.
    ///
    /// # Errors
    /// The reason why not.
    pub fn legality(self) -> Result<(), &'static str> {
        use ExchangePattern::{HalvingDoubling, InNetwork, Ring};
        use ModelPlace::{AllReduce, Gossip, Servers};

        match (self.architecture, self.timing, self.pattern, self.loss) {
            (Servers, _, Ring | HalvingDoubling, _) => {
                Err("a ring and halving-doubling leave the sum with the workers: no server has it")
            }
            (AllReduce, Timing::Asynchronous, ..) => {
                Err("the sum of all workers exists only when all have come")
            }
            (Gossip, _, InNetwork, _) => {
                Err("a switch makes one sum of all; pairs of workers have no use for it")
            }
            (Servers, Timing::BoundedStale | Timing::Asynchronous, InNetwork, _) => Err(
                "a switch adds contributions to one step; here each worker is in a step of its own",
            ),
            (.., InNetwork, LossBound::Bounded) => Err(
                "a switch frees the place of a sum when every worker is in it, so a lost \
                 contribution must come again",
            ),
            (AllReduce, _, Ring | HalvingDoubling, LossBound::Bounded) => Err(
                "each hop carries a sum of several workers, so a loss would cost all of their \
                 values: gradwire keeps these lossless",
            ),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_the_reference_is_legal() {
        let all = TrainingCell::all();
        assert_eq!(all.len(), 3 * 3 * 5 * 2);
        let names: BTreeSet<String> = all.iter().map(|cell| cell.name()).collect();
        assert_eq!(names.len(), all.len());
        assert_eq!(TrainingCell::REFERENCE.legality(), Ok(()));
    }

    #[test]
    fn every_value_of_every_axis_has_a_legal_cell() {
        let legal = TrainingCell::all().into_iter();
        let legal: Vec<_> = legal.filter(|cell| cell.legality().is_ok()).collect();
        let has = |is: &dyn Fn(&TrainingCell) -> bool| legal.iter().any(is);
        for &value in ModelPlace::VARIANTS {
            assert!(has(&|cell| cell.architecture == value), "{value:?}");
        }
        for &value in Timing::VARIANTS {
            assert!(has(&|cell| cell.timing == value), "{value:?}");
        }
        for &value in ExchangePattern::VARIANTS {
            assert!(has(&|cell| cell.pattern == value), "{value:?}");
        }
        for &value in LossBound::VARIANTS {
            assert!(has(&|cell| cell.loss == value), "{value:?}");
        }
    }
}
