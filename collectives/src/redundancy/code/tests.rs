//! Facts about whole codes: any servers that are enough restore everything, and a lost one is
//! rebuilt from as many bytes as its closed form says.

use gradwire_protocol::job::RedundancyTerms;

use super::*;

const LENGTH: usize = 75;

fn code(text: &str) -> Code {
    Code::new(text.parse().expect("the terms are right")).expect("the code exists")
}

/// Codes over ten servers, and over few.
fn codes() -> Vec<Code> {
    let texts = [
        "mbr:10,5,9",
        "msr:10,5,9",
        "rs:10,5",
        "msr:10,5,8",
        "mbr:10,5,7",
        "mbr:4,2,3",
        "msr:4,2,3",
        "rs:5,3",
        "mbr:2,1,1",
        "msr:3,1,2",
        "mbr:7,3,4",
    ];
    texts.map(code).into()
}

/// And over more servers, where trying all sets of them would take seconds.
fn more_codes() -> Vec<Code> {
    let more = ["mbr:14,10,13", "msr:14,7,13", "rs:14,10"].map(code);
    codes().into_iter().chain(more).collect()
}

fn combined(factors: &[Vec<u8>], inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut outputs = vec![vec![0; LENGTH]; factors.len()];
    let rows: Vec<&[u8]> = factors.iter().map(Vec::as_slice).collect();
    let from: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let mut to: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
    combine(&rows, &from, &mut to);
    outputs
}

/// Symbols with their values.
struct Known(Vec<(usize, Vec<u8>)>);

impl Known {
    /// Random data of every server.
    fn data(code: &Code) -> Self {
        let mut state = 88_172_645_463_325_252_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        let symbols = (0..code.terms.servers()).flat_map(|server| code.data(server));
        Self(
            symbols
                .map(|s| (s, (0..LENGTH).map(|_| next()).collect()))
                .collect(),
        )
    }

    fn derive(&self, code: &Code, targets: &[usize]) -> Result<Self, CodeError> {
        let symbols: Vec<usize> = self.0.iter().map(|(symbol, _)| *symbol).collect();
        let values: Vec<Vec<u8>> = self.0.iter().map(|(_, value)| value.clone()).collect();
        let derived = combined(&code.express(targets, &symbols)?, &values);
        Ok(Self(targets.iter().copied().zip(derived).collect()))
    }

    /// The symbols that are stored by the servers of a set of bits.
    fn of_servers(&self, code: &Code, servers: u32) -> Self {
        let stored = code.stored_symbols();
        let kept = self
            .0
            .iter()
            .filter(|(symbol, _)| servers >> (symbol / stored) & 1 == 1);
        Self(kept.cloned().collect())
    }
}

fn everything(code: &Code) -> (Known, Known) {
    let data = Known::data(code);
    let all: Vec<usize> = (0..code.terms.servers())
        .flat_map(|s| code.stored(s))
        .collect();
    let stored = data.derive(code, &all).expect("the data determine all");
    (data, stored)
}

fn subsets(code: &Code, size: usize) -> impl Iterator<Item = u32> + use<> {
    let servers = code.terms.servers() as u32;
    (0..1_u32 << servers).filter(move |set| set.count_ones() as usize == size)
}

#[test]
fn any_needed_servers_restore_everything() {
    for code in codes() {
        let (data, stored) = everything(&code);
        let symbols: Vec<usize> = data.0.iter().map(|(symbol, _)| *symbol).collect();
        let mut count = 0;
        for set in subsets(&code, code.terms.needed()) {
            let restored = stored.of_servers(&code, set).derive(&code, &symbols);
            assert_eq!(
                restored.expect("enough").0,
                data.0,
                "{} {set:b}",
                code.terms
            );
            count += 1;
        }
        assert!(code.terms.servers() != 10 || count == 252, "{}", code.terms);
    }
}

#[test]
fn one_server_less_restores_not_everything() {
    for code in codes() {
        let (data, stored) = everything(&code);
        let symbols: Vec<usize> = data.0.iter().map(|(symbol, _)| *symbol).collect();
        for set in subsets(&code, code.terms.needed() - 1).take(20) {
            let restored = stored.of_servers(&code, set).derive(&code, &symbols);
            let refused = matches!(restored, Err(CodeError::Undetermined { .. }));
            assert!(refused, "{} {set:b}", code.terms);
        }
    }
}

#[test]
fn every_server_is_rebuilt_from_the_symbols_sent() {
    for code in more_codes() {
        let (_, stored) = everything(&code);
        let (servers, rebuilders) = (code.terms.servers(), code.terms.rebuilders());
        for lost in 0..servers {
            let from: Vec<usize> = (1..=rebuilders)
                .map(|step| (lost + step) % servers)
                .collect();
            let mut sent = Vec::new();
            for rebuilder in from {
                let own = stored.of_servers(&code, 1 << rebuilder);
                let symbols: Vec<usize> = code.sent(rebuilder, lost).collect();
                sent.extend(
                    own.derive(&code, &symbols)
                        .expect("a rebuilder knows them")
                        .0,
                );
            }
            let symbols: Vec<usize> = code.stored(lost).collect();
            let rebuilt = Known(sent)
                .derive(&code, &symbols)
                .expect("they are enough");
            assert_eq!(
                rebuilt.0,
                stored.of_servers(&code, 1 << lost).0,
                "{}",
                code.terms
            );
        }
    }
}

/// Storage of a server, and the bytes that rebuild one, as shares of all data.
fn costs(code: &Code) -> (f64, f64) {
    let all = (code.terms.servers() * code.data_symbols()) as f64;
    let sent = code.terms.rebuilders() * code.sent_symbols();
    (code.stored_symbols() as f64 / all, sent as f64 / all)
}

#[test]
fn storage_and_repair_are_the_corners_of_the_curve() {
    use crate::redundancy::curve::corners;
    for code in more_codes() {
        let corners = corners(code.terms.needed(), code.terms.rebuilders());
        let expected = match code.terms.family {
            gradwire_protocol::job::RedundancyFamily::Msr => corners[0],
            gradwire_protocol::job::RedundancyFamily::Mbr => corners[corners.len() - 1],
            gradwire_protocol::job::RedundancyFamily::Rs => crate::redundancy::curve::Corner {
                storage: 1.0 / code.terms.needed() as f64,
                repair: 1.0,
            },
        };
        let (storage, repair) = costs(&code);
        assert!((storage - expected.storage).abs() < 1e-12, "{}", code.terms);
        assert!((repair - expected.repair).abs() < 1e-12, "{}", code.terms);
    }
}

#[test]
fn data_of_one_lost_mbr_server_lie_on_the_others() {
    let code = code("mbr:10,5,9");
    let sent: Vec<usize> = (1..10)
        .flat_map(|rebuilder| code.sent(rebuilder, 0))
        .collect();
    let data: Vec<usize> = code.data(0).collect();
    let factors = code.express(&data, &sent).expect("they are enough");
    for row in factors {
        let used: Vec<u8> = row.into_iter().filter(|factor| *factor != 0).collect();
        assert_eq!(used, [1], "a copy, nothing to compute");
    }
}

#[test]
fn wrong_numbers_of_symbols_are_refused() {
    let code = code("mbr:4,2,3");
    let error = code
        .express(&[0], &[100_000])
        .expect_err("there are not so many");
    assert!(
        error.to_string().contains("mbr:4,2,3 has symbols 0 to "),
        "{error}"
    );
}

#[test]
fn a_code_that_bytes_cannot_make_is_refused() {
    let terms: RedundancyTerms = "msr:32,16,30".parse().expect("the numbers agree");
    let error = Code::new(terms).expect_err("too few elements").to_string();
    assert!(
        error.starts_with("msr:32,16,30 does not exist over bytes"),
        "{error}"
    );
}
