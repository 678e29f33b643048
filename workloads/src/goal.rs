//! Schedules in GOAL text (`.goal`).
//!
//! Format, as read by `txt2bin` of LogGOPSim (`src/LogGOPSim/txt2bin.re`; Hoefler et al., "Group
//! Operation Assembly Language", ICPP 2009):
//!
//! ```text
//! num_ranks 2
//! rank 0 {
//! l1: calc 1500 cpu 0
//! l2: send 80b to 1 tag 7
//! l2 requires l1
//! }
//! rank 1 {
//! l1: recv 80b from 0 tag 7
//! }
//! ```
//!
//! `calc` takes nanoseconds; calculations of one `cpu` run one at a time. `requires` waits for the
//! end of another operation of the rank, `irequires` for its start; without either, operations run
//! side by side. The reader skips `nic`: a host has one link. A message of 0 bytes
//! is carried as one of 1 byte. `//` and `/* */` are comments. Rank `i` runs on host `i`.

mod tokens;

use std::collections::BTreeMap;

use gradwire_protocol::units::{ByteCount, Span};

use crate::order::in_order;
use crate::words::did_you_mean;
use crate::workload::{Program, Task, Work, Workload};
use tokens::Tokens;

/// Errors of a schedule.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum GoalError {
    /// Another word belongs here.
    #[error("line {line}: `{given}`{nearest}: allowed here is {allowed}")]
    Word {
        /// Number of the line.
        line: usize,
        /// The word; empty at the end of the text.
        given: String,
        /// A suggestion, or an empty text.
        nearest: String,
        /// The allowed values.
        allowed: &'static str,
    },
    /// `num_ranks` does not allow this rank.
    #[error(
        "line {line}: rank {rank}; `num_ranks {ranks}` allows 0 to {}",
        ranks.saturating_sub(1)
    )]
    Rank {
        /// Number of the line.
        line: usize,
        /// The rank.
        rank: u32,
        /// Their number.
        ranks: u32,
    },
    /// The rank or label exists already.
    #[error("line {line}: {what} is there already; write it once")]
    Twice {
        /// Number of the line.
        line: usize,
        /// `rank 3` or `label l1`.
        what: String,
    },
    /// No operation of the rank has this label.
    #[error("line {line}: no operation of rank {rank} has the label `{label}`{nearest}")]
    Label {
        /// Number of the line.
        line: usize,
        /// The rank.
        rank: u32,
        /// The label.
        label: String,
        /// A suggestion, or an empty text.
        nearest: String,
    },
    /// The format has this, and the simulator lacks it.
    #[error("line {line}: {what}")]
    Unsupported {
        /// Number of the line.
        line: usize,
        /// The missing part, and the way around it.
        what: &'static str,
    },
    /// Operations wait for each other in a circle.
    #[error("rank {rank}: operation `{label}` waits for itself; break the circle of `requires`")]
    Circle {
        /// The rank.
        rank: u32,
        /// Label of an operation on the circle.
        label: String,
    },
}

impl Workload {
    /// Reads a schedule. Returns the programs of all its ranks, also of those without operations.
    ///
    /// # Errors
    /// [`GoalError`] names the first faulty line.
    pub fn from_goal(text: &str) -> Result<Self, GoalError> {
        let mut tokens = Tokens::new(text);
        tokens.expect("num_ranks", "`num_ranks` and how many ranks there are")?;
        let ranks = tokens.number()?;
        let mut programs: BTreeMap<u32, Program> = BTreeMap::new();
        while !tokens.at_end() {
            let line = tokens.line();
            let program = Block::read(&mut tokens, ranks)?;
            let host = program.host;
            if programs.insert(host, program).is_some() {
                let what = format!("rank {host}");
                return Err(GoalError::Twice { line, what });
            }
        }
        Ok(Self {
            programs: programs.into_values().collect(),
            ..Self::default()
        })
    }
}

/// The operations of a rank, as far as they have been read.
struct Block {
    rank: u32,
    ranks: u32,
    tasks: Vec<Task>,
    labels: BTreeMap<String, u32>,
    waits: Vec<Wait>,
}

/// A `requires` or `irequires` line.
struct Wait {
    line: usize,
    later: String,
    earlier: String,
    until: Until,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Until {
    End,
    Start,
}

impl Block {
    fn read(tokens: &mut Tokens<'_>, ranks: u32) -> Result<Program, GoalError> {
        tokens.expect("rank", "`rank`, its number and `{`")?;
        let rank = tokens.rank(ranks)?;
        tokens.expect("{", "`{`")?;
        let mut block = Self {
            rank,
            ranks,
            tasks: Vec::new(),
            labels: BTreeMap::new(),
            waits: Vec::new(),
        };
        while !tokens.takes("}") {
            block.statement(tokens)?;
        }
        block.finish()
    }

    fn statement(&mut self, tokens: &mut Tokens<'_>) -> Result<(), GoalError> {
        let line = tokens.line();
        if ["send", "recv", "calc"].contains(&tokens.peek()) {
            return self.operation(tokens, String::new());
        }
        let label = tokens.label()?;
        let until = match tokens.next() {
            ":" => return self.labelled(tokens, line, label),
            "requires" => Until::End,
            "irequires" => Until::Start,
            given => {
                let allowed = "`:`, `requires` or `irequires` behind a label";
                return Err(tokens.wrong(given, allowed));
            }
        };
        let earlier = tokens.label()?;
        self.waits.push(Wait {
            line,
            later: label,
            earlier,
            until,
        });
        Ok(())
    }

    fn labelled(
        &mut self,
        tokens: &mut Tokens<'_>,
        line: usize,
        label: String,
    ) -> Result<(), GoalError> {
        let number = self.tasks.len() as u32;
        if self.labels.insert(label.clone(), number).is_some() {
            let what = format!("label {label}");
            return Err(GoalError::Twice { line, what });
        }
        self.operation(tokens, label)
    }

    fn operation(&mut self, tokens: &mut Tokens<'_>, name: String) -> Result<(), GoalError> {
        let line = tokens.line();
        let work = match tokens.next() {
            "calc" => {
                let span = Span::from_nanos(tokens.number()?);
                let unit = tokens.options()?.cpu;
                Work::Compute { span, unit }
            }
            "send" => {
                let (bytes, to) = self.message(tokens, "to")?;
                let tag = tokens.options()?.tag;
                Work::Send { to, bytes, tag }
            }
            "recv" => {
                let (bytes, from) = self.message(tokens, "from")?;
                let tag = tokens.options()?.tag;
                Work::Receive { from, bytes, tag }
            }
            given => return Err(tokens.wrong(given, "`send`, `recv` or `calc`")),
        };
        let peer = match work {
            Work::Send { to: peer, .. } | Work::Receive { from: peer, .. } => Some(peer),
            _ => None,
        };
        if peer == Some(self.rank) {
            let what = "a rank sends to itself; write `calc` for what it does by itself";
            return Err(GoalError::Unsupported { line, what });
        }
        self.tasks.push(Task::new(name, work, Vec::new()));
        Ok(())
    }

    fn message(
        &self,
        tokens: &mut Tokens<'_>,
        direction: &'static str,
    ) -> Result<(ByteCount, u32), GoalError> {
        let bytes = tokens.bytes()?;
        let allowed = "`to` behind the bytes of a send, `from` behind those of a recv";
        tokens.expect(direction, allowed)?;
        if tokens.peek() == "-1" {
            let what = "`from -1` (any sender) is not simulated; name the sender";
            let line = tokens.line();
            return Err(GoalError::Unsupported { line, what });
        }
        let peer = tokens.rank(self.ranks)?;
        Ok((ByteCount::new(bytes.max(1)), peer))
    }

    fn finish(mut self) -> Result<Program, GoalError> {
        for wait in &self.waits {
            let later = self.place(wait, &wait.later)?;
            let earlier = self.place(wait, &wait.earlier)?;
            let task = &mut self.tasks[later as usize];
            match wait.until {
                Until::End => task.after.push(earlier),
                Until::Start => task.after_start.push(earlier),
            }
        }
        let labels = self.labels;
        let tasks = in_order(self.tasks).map_err(|stuck| {
            let label = labels.iter().find(|(_, number)| **number as usize == stuck);
            GoalError::Circle {
                rank: self.rank,
                label: label.map_or_else(String::new, |(label, _)| label.clone()),
            }
        })?;
        Ok(Program {
            host: self.rank,
            tasks,
        })
    }

    fn place(&self, wait: &Wait, label: &str) -> Result<u32, GoalError> {
        let place = self.labels.get(label).copied();
        place.ok_or_else(|| GoalError::Label {
            line: wait.line,
            rank: self.rank,
            label: label.to_owned(),
            nearest: did_you_mean(label, self.labels.keys().map(String::as_str)),
        })
    }
}
