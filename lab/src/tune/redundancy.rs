//! How much storage and repair traffic codes over parameter servers cost: the curve that no code
//! can pass, and the codes of the job key `servers.redundancy`.

use std::fmt::Write;
use std::hint::black_box;

use clap::Args;
use gradwire_collectives::redundancy::curve::{Corner, corners};
use gradwire_collectives::redundancy::{Code, combine};
use gradwire_protocol::job::{RedundancyFamily, RedundancyTerms};
use serde::Serialize;

use crate::error::LabError;
use crate::sim::cost::now;

/// Bytes of a symbol whose encoding is timed.
const SYMBOL_BYTES: usize = 256 << 10;
/// Repetitions; the fastest counts, since every disturbance makes one slower.
const ROUNDS: usize = 7;

/// The servers of a code.
#[derive(Args, Clone, Copy, Debug)]
pub struct RedundancyQuestion {
    /// Servers, n.
    #[arg(long, default_value_t = 10, value_name = "COUNT")]
    pub servers: u8,
    /// Servers that hold everything, whichever they are: k. Without it, half of all.
    #[arg(long, value_name = "COUNT")]
    pub needed: Option<u8>,
    /// Servers that rebuild a lost one, d. Without it, all others.
    #[arg(long, value_name = "COUNT")]
    pub rebuilders: Option<u8>,
}

/// A corner of the curve, in shares of all state.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CornerRow {
    /// Storage of a server.
    pub storage: f64,
    /// Bytes that rebuild a server.
    pub repair: f64,
}

/// A code, in shares of all state.
#[derive(Clone, Debug, Serialize)]
pub struct CodeRow {
    /// As the job key has it.
    pub redundancy: String,
    /// Storage of a server.
    pub storage: f64,
    /// Bytes that rebuild a server.
    pub repair: f64,
    /// The part of them that comes first: with it the server has its own state.
    pub own_state: f64,
    /// State that one core of this host encodes for one server, in GB/s.
    pub encode_gb_per_s: f64,
}

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct RedundancyReport {
    /// n, k and d.
    pub servers: u8,
    /// See [`RedundancyQuestion::needed`].
    pub needed: u8,
    /// See [`RedundancyQuestion::rebuilders`].
    pub rebuilders: u8,
    /// The curve, from least storage to least repair.
    pub corners: Vec<CornerRow>,
    /// The codes that exist.
    pub codes: Vec<CodeRow>,
    /// The rate at which the same core copies such symbols, in GB/s.
    pub copy_gb_per_s: f64,
}

/// Computes the curve, constructs the codes and times them.
///
/// # Errors
/// [`LabError`] when the numbers contradict each other.
pub fn run(question: &RedundancyQuestion) -> Result<RedundancyReport, LabError> {
    let servers = question.servers;
    let needed = question.needed.unwrap_or_else(|| servers.div_ceil(2));
    let rebuilders = question
        .rebuilders
        .unwrap_or_else(|| servers.saturating_sub(1));
    let numbers = (servers, needed, rebuilders);
    if RedundancyTerms::new(RedundancyFamily::Mbr, numbers).is_none() {
        return Err(LabError::Usage(format!(
            "--servers {servers} --needed {needed} --rebuilders {rebuilders}: allowed are 1 to \
             31 needed servers, as many rebuilders or more, and more servers than rebuilders, at \
             most 32"
        )));
    }
    let families = [
        (RedundancyFamily::Mbr, numbers),
        (RedundancyFamily::Msr, numbers),
        (RedundancyFamily::Rs, (servers, needed, needed)),
    ];
    let terms = families
        .into_iter()
        .filter_map(|(family, numbers)| RedundancyTerms::new(family, numbers));
    let codes = terms.filter_map(|terms| Code::new(terms).ok());
    let row = |Corner { storage, repair }| CornerRow { storage, repair };
    Ok(RedundancyReport {
        servers,
        needed,
        rebuilders,
        corners: corners(needed.into(), rebuilders.into())
            .into_iter()
            .map(row)
            .collect(),
        codes: codes.map(|code| code_row(&code)).collect(),
        copy_gb_per_s: copy_rate(),
    })
}

fn code_row(code: &Code) -> CodeRow {
    let terms = code.terms();
    let all = (terms.servers() * code.data_symbols()) as f64;
    let sent: Vec<usize> = (1..=terms.rebuilders())
        .flat_map(|rebuilder| code.sent(rebuilder, 0))
        .collect();
    let own: Vec<usize> = code.data(0).collect();
    let rows = code
        .express(&own, &sent)
        .expect("rebuilders rebuild any server");
    let is_used = |at: &usize| rows.iter().any(|row| row[*at] != 0);
    CodeRow {
        redundancy: terms.to_string(),
        storage: code.stored_symbols() as f64 / all,
        repair: sent.len() as f64 / all,
        own_state: (0..sent.len()).filter(is_used).count() as f64 / all,
        encode_gb_per_s: encode_rate(code),
    }
}

/// Bytes of all servers' state per nanosecond.
fn encode_rate(code: &Code) -> f64 {
    let data: Vec<usize> = (0..code.terms().servers())
        .flat_map(|server| code.data(server))
        .collect();
    let stored: Vec<usize> = code.stored(0).collect();
    let rows = code
        .express(&stored, &data)
        .expect("the data determine all symbols");
    let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
    let symbol: Vec<u8> = (0..SYMBOL_BYTES).map(|at| (at * 31 % 251) as u8).collect();
    let inputs = vec![symbol.as_slice(); data.len()];
    let mut outputs = vec![vec![0; SYMBOL_BYTES]; stored.len()];
    let seconds = fastest(|| {
        let mut places: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
        combine(&rows, black_box(&inputs), &mut places);
    });
    (data.len() * SYMBOL_BYTES) as f64 / seconds / 1e9
}

fn copy_rate() -> f64 {
    let (from, mut to) = (vec![7_u8; 64 * SYMBOL_BYTES], vec![0_u8; 64 * SYMBOL_BYTES]);
    let seconds = fastest(|| black_box(&mut to).copy_from_slice(black_box(&from)));
    from.len() as f64 / seconds / 1e9
}

fn fastest(mut body: impl FnMut()) -> f64 {
    let rounds = (0..ROUNDS).map(|_| {
        let started = now();
        body();
        started.elapsed().as_secs_f64()
    });
    rounds.fold(f64::INFINITY, f64::min)
}

impl RedundancyReport {
    /// The report in words.
    pub fn text(&self) -> String {
        let Self {
            servers,
            needed,
            rebuilders,
            ..
        } = self;
        let mut text = format!(
            "{servers} servers, of which any {needed} hold everything; {rebuilders} rebuild a lost \
             one. Shares of all state.\n\n  corner  storage  repair\n"
        );
        let last = self.corners.len() - 1;
        for (at, corner) in self.corners.iter().enumerate() {
            let name = match at {
                0 => "MSR".to_owned(),
                at if at == last => "MBR".to_owned(),
                at => at.to_string(),
            };
            let CornerRow { storage, repair } = corner;
            let _ = writeln!(text, "  {name:<6}  {storage:7.4}  {repair:6.4}");
        }
        text.push_str("\n  servers.redundancy  storage  repair  own state  encode GB/s\n");
        for code in &self.codes {
            let _ = writeln!(
                text,
                "  {:<18}  {:7.4}  {:6.4}  {:9.4}  {:11.2}",
                code.redundancy, code.storage, code.repair, code.own_state, code.encode_gb_per_s
            );
        }
        let _ = write!(text, "  {:<18}  {:>38.2}", "a copy", self.copy_gb_per_s);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_servers_have_the_published_corners() {
        let question = RedundancyQuestion {
            servers: 10,
            needed: None,
            rebuilders: None,
        };
        let report = run(&question).expect("the numbers agree");
        let text = report.text();
        for line in [
            "  MSR      0.2000  0.3600",
            "  MBR      0.2571  0.2571",
            "  mbr:10,5,9           0.2571  0.2571     0.1000",
            "  msr:10,5,9           0.2000  0.3600     0.3600",
            "  rs:10,5              0.2000  1.0000     0.5000",
        ] {
            assert!(text.contains(line), "{line:?} in\n{text}");
        }
    }

    #[test]
    fn numbers_that_contradict_each_other_are_named() {
        let question = RedundancyQuestion {
            servers: 4,
            needed: Some(4),
            rebuilders: None,
        };
        let error = run(&question)
            .expect_err("any 4 of 4 survive no loss")
            .to_string();
        assert!(
            error.starts_with("--servers 4 --needed 4 --rebuilders 3: allowed are"),
            "{error}"
        );
    }
}
