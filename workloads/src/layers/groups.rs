//! The groups of ranks: rank `(stage * data + d) * tensor + t` is number `t` of its tensor-parallel
//! group and number `d` of its data-parallel group, as in Megatron-LM (Narayanan et al., SC 2021)
//! and SimAI. `HYBRID_MODEL_DATA` has data in the inner place and tensor in the outer one.
//!
//! Expert-parallel groups cut a data-parallel group into runs of `ep` ranks; ranks in the same
//! place of these runs hold the same experts.

use std::collections::{BTreeMap, BTreeSet};

use crate::fault::TextError;

use super::file::{File, FileLayer, Keys, Scope, Strategy};

/// The kind of group that runs a collective.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Side {
    Everybody,
    Tensor,
    Data,
    Experts,
    SameExperts,
}

/// A direction of a layer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Direction {
    Forward,
    Input,
    Weight,
}

/// The groups that a file needs.
pub(super) struct LayerGroups {
    /// Ranks of each, in order.
    pub(super) members: Vec<Vec<u32>>,
    numbers: BTreeMap<(Side, u32), u32>,
    shape: RankGrid,
}

impl LayerGroups {
    pub(super) fn new(file: &File, hosts: u32) -> Result<Self, TextError> {
        let mut groups = Self {
            members: Vec::new(),
            numbers: BTreeMap::new(),
            shape: RankGrid::new(file, hosts)?,
        };
        for side in sides(file) {
            for rank in 0..hosts {
                let next = groups.members.len() as u32;
                let key = (side, groups.shape.group(side, rank));
                let number = *groups.numbers.entry(key).or_insert(next);
                if number == next {
                    groups.members.push(Vec::new());
                }
                groups.members[number as usize].push(rank);
            }
        }
        Ok(groups)
    }

    /// Returns the group of a rank; `None` when the rank is alone in it.
    pub(super) fn of(&self, rank: u32, side: Side) -> Option<u32> {
        let number = *self.numbers.get(&(side, self.shape.group(side, rank)))?;
        (self.members[number as usize].len() > 1).then_some(number)
    }
}

/// Returns the kind of group that shares a direction of a layer; `None`: the ranks share nothing.
pub(super) fn side(layer: &FileLayer, direction: Direction, scope: Scope) -> Option<Side> {
    match scope {
        Scope::Experts => return Some(Side::Experts),
        Scope::SameExperts => return Some(Side::SameExperts),
        Scope::Plain => {}
    }
    let weight = direction == Direction::Weight;
    match layer.strategy {
        Strategy::Data | Strategy::Dlrm | Strategy::Micro => weight.then_some(Side::Everybody),
        Strategy::Model | Strategy::Inference => (!weight).then_some(Side::Everybody),
        Strategy::DataModel
        | Strategy::ModelData
        | Strategy::Transformer
        | Strategy::Customized => Some(if weight { Side::Data } else { Side::Tensor }),
    }
}

fn sides(file: &File) -> BTreeSet<Side> {
    let passes = file.layers.iter().flat_map(|layer| {
        [
            (layer, Direction::Forward, layer.forward),
            (layer, Direction::Input, layer.input),
            (layer, Direction::Weight, layer.weight),
        ]
    });
    let mut sides: BTreeSet<Side> = passes
        .filter_map(|(layer, direction, pass)| side(layer, direction, pass.collective?.scope))
        .collect();
    if file.strategy == Strategy::Dlrm {
        sides.insert(Side::Everybody);
    }
    sides
}

/// The number of ranks in each direction.
struct RankGrid {
    tensor: u32,
    data: u32,
    experts: u32,
    order: InnerGroup,
}

/// The kind of group in the inner place.
#[derive(Clone, Copy, Eq, PartialEq)]
enum InnerGroup {
    TensorInner,
    DataInner,
}

impl RankGrid {
    fn new(file: &File, hosts: u32) -> Result<Self, TextError> {
        let Keys {
            tensor,
            experts,
            stages,
            ranks,
            ..
        } = file.keys;
        let refused = |rule: String| {
            let text = format!("{hosts} hosts cannot run it: {rule}");
            Err(TextError::Whole(text))
        };
        if let Some(ranks) = ranks.filter(|&ranks| ranks != hosts) {
            return refused(format!(
                "the file says `all_gpus: {ranks}`; use {ranks} hosts or change the line"
            ));
        }
        let inner = u64::from(tensor) * u64::from(stages);
        if hosts == 0 || !u64::from(hosts).is_multiple_of(inner) {
            return refused(format!(
                "their number must be a multiple of {tensor} (model_parallel_NPU_group) x {stages} \
                 (pp) = {inner}"
            ));
        }
        let data = (u64::from(hosts) / inner) as u32;
        if !data.is_multiple_of(experts) {
            return refused(format!(
                "{data} data-parallel ranks are no multiple of {experts} (ep)"
            ));
        }
        let inner_data = file.strategy == Strategy::ModelData;
        Ok(Self {
            tensor,
            data,
            experts,
            order: if inner_data {
                InnerGroup::DataInner
            } else {
                InnerGroup::TensorInner
            },
        })
    }

    /// Returns the number of a rank's group among those of its kind.
    fn group(&self, side: Side, rank: u32) -> u32 {
        let stage = rank / (self.tensor * self.data);
        let (d, t) = match self.order {
            InnerGroup::TensorInner => (rank / self.tensor % self.data, rank % self.tensor),
            InnerGroup::DataInner => (rank % self.data, rank / self.data % self.tensor),
        };
        let column = stage * self.tensor + t;
        match side {
            Side::Everybody => 0,
            Side::Tensor => stage * self.data + d,
            Side::Data => column,
            Side::Experts => column * (self.data / self.experts) + d / self.experts,
            Side::SameExperts => column * self.experts + d % self.experts,
        }
    }
}
