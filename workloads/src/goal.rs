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

use crate::fault::TextError;
use crate::order::in_order;
use crate::words::did_you_mean;
use crate::workload::{Program, Task, Work, Workload};
use tokens::Tokens;

impl Workload {
    /// Reads a schedule. Returns the programs of all its ranks, also of those without operations.
    ///
    /// # Errors
    /// [`TextError`] names the first faulty line.
    pub fn from_goal(text: &str) -> Result<Self, TextError> {
        let mut tokens = Tokens::new(text);
        tokens.expect("num_ranks", "`num_ranks` and how many ranks there are")?;
        let ranks = tokens.number()?;
        let mut programs: BTreeMap<u32, Program> = BTreeMap::new();
        while !tokens.at_end() {
            let line = tokens.line();
            let program = Block::read(&mut tokens, ranks)?;
            let host = program.host;
            if programs.insert(host, program).is_some() {
                return Err(twice(line, &format!("rank {host}")));
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
    fn read(tokens: &mut Tokens<'_>, ranks: u32) -> Result<Program, TextError> {
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

    fn statement(&mut self, tokens: &mut Tokens<'_>) -> Result<(), TextError> {
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
    ) -> Result<(), TextError> {
        let number = self.tasks.len() as u32;
        if self.labels.insert(label.clone(), number).is_some() {
            return Err(twice(line, &format!("label {label}")));
        }
        self.operation(tokens, label)
    }

    fn operation(&mut self, tokens: &mut Tokens<'_>, name: String) -> Result<(), TextError> {
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
            let rule = "a rank sends to itself; write `calc` for what it does by itself";
            return Err(TextError::line(line, rule));
        }
        self.tasks.push(Task::new(name, work, Vec::new()));
        Ok(())
    }

    fn message(
        &self,
        tokens: &mut Tokens<'_>,
        direction: &str,
    ) -> Result<(ByteCount, u32), TextError> {
        let bytes = tokens.bytes()?;
        let allowed = "`to` behind the bytes of a send, `from` behind those of a recv";
        tokens.expect(direction, allowed)?;
        if tokens.peek() == "-1" {
            let rule = "`from -1` (any sender) is not simulated; name the sender";
            return Err(TextError::line(tokens.line(), rule));
        }
        let peer = tokens.rank(self.ranks)?;
        Ok((ByteCount::new(bytes.max(1)), peer))
    }

    fn finish(mut self) -> Result<Program, TextError> {
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
            let (rank, label) = (self.rank, label.map_or("", |(label, _)| label));
            TextError::Whole(format!(
                "rank {rank}: operation `{label}` waits for itself; break the circle of `requires`"
            ))
        })?;
        Ok(Program {
            host: self.rank,
            tasks,
        })
    }

    fn place(&self, wait: &Wait, label: &str) -> Result<u32, TextError> {
        let place = self.labels.get(label).copied();
        place.ok_or_else(|| {
            let rank = self.rank;
            let nearest = did_you_mean(label, self.labels.keys().map(String::as_str));
            let rule = format!("no operation of rank {rank} has the label `{label}`{nearest}");
            TextError::line(wait.line, rule)
        })
    }
}

/// The fault of a rank or label that exists already.
fn twice(line: usize, what: &str) -> TextError {
    TextError::line(line, format!("{what} exists already; write it once"))
}
