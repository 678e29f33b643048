//! Process groups of traces.

use std::collections::{BTreeMap, BTreeSet};

use crate::fault::TextError;

use super::schema::{OperationKind, TraceOperation};

/// The groups named by the collectives of all traces.
pub(super) struct ProcessGroups {
    /// Ranks of each, in order.
    pub(super) members: Vec<Vec<u32>>,
    numbers: BTreeMap<String, u32>,
}

/// Part of the name of the operation in which PyTorch lists process groups. Its inputs hold JSON of
/// this form: `[{"pg_name": "1", "ranks": [0, 2]}, ...]`; no ranks are all ranks.
const LIST: &str = "process_group:init";

/// One entry of a list of process groups.
#[derive(serde::Deserialize)]
struct Listed {
    pg_name: String,
    ranks: Vec<u32>,
}

impl ProcessGroups {
    pub(super) fn new(traces: &[Vec<TraceOperation>]) -> Result<Self, TextError> {
        let everybody: BTreeSet<u32> = (0..traces.len() as u32).collect();
        let mut named: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
        let mut listed: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
        for (rank, trace) in (0..).zip(traces) {
            for entry in trace {
                if entry.kind() == OperationKind::Collective && entry.number("comm_type").is_some()
                {
                    named.entry(name_of(entry)).or_default().insert(rank);
                }
                if entry.kind() == OperationKind::Metadata && entry.name.contains(LIST) {
                    for group in read_list(rank, entry.inputs())? {
                        let ranks = checked(rank, &group, &everybody)?;
                        listed.insert(group.pg_name, ranks);
                    }
                }
            }
        }
        let members = named.iter().map(|(name, ranks)| {
            let all = name.is_empty() || name == "0";
            let unlisted = if all { &everybody } else { ranks };
            let ranks = listed.get(name).unwrap_or(unlisted);
            ranks.iter().copied().collect()
        });
        Ok(Self {
            members: members.collect(),
            numbers: named.keys().cloned().zip(0..).collect(),
        })
    }

    /// Returns the group of a collective; `None` when the rank is alone in it.
    pub(super) fn of(&self, entry: &TraceOperation) -> Option<u32> {
        let number = *self.numbers.get(&name_of(entry))?;
        (self.members[number as usize].len() > 1).then_some(number)
    }
}

fn name_of(entry: &TraceOperation) -> String {
    entry.text("pg_name").unwrap_or("").to_owned()
}

fn read_list(rank: u32, inputs: &str) -> Result<Vec<Listed>, TextError> {
    let (Some(first), Some(last)) = (inputs.find("[{"), inputs.rfind("}]")) else {
        return Ok(Vec::new());
    };
    let list = inputs.get(first..last + 2).unwrap_or("");
    serde_json::from_str(list).map_err(|error| wrong(rank, &error.to_string()))
}

fn checked(
    rank: u32,
    group: &Listed,
    everybody: &BTreeSet<u32>,
) -> Result<BTreeSet<u32>, TextError> {
    if group.ranks.is_empty() {
        return Ok(everybody.clone());
    }
    match group.ranks.iter().find(|it| !everybody.contains(it)) {
        None => Ok(group.ranks.iter().copied().collect()),
        Some(missing) => {
            let (name, last) = (&group.pg_name, everybody.len().saturating_sub(1));
            let what =
                format!("`{name}` has rank {missing}; there are traces of ranks 0 to {last} only");
            Err(wrong(rank, &what))
        }
    }
}

fn wrong(rank: u32, what: &str) -> TextError {
    TextError::Whole(format!("rank {rank}: process groups: {what}"))
}
