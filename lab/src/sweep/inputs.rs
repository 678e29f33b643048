//! The files that a scenario names: its result depends on them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use gradwire_workloads::workload::Workload;
use serde_json::json;

use crate::files::beside;
use crate::sim::scenario::Scenario;

/// Fields of a scenario that may name a file.
const NAMING: [&str; 4] = ["fabric", "workload", "background", "job"];

/// Digests of the files read so far.
pub type Digests = BTreeMap<PathBuf, String>;

/// Returns the files that a scenario names and those read with them: with a trace of rank 0 the
/// other ranks' traces, with training steps the file of the model.
pub fn files(scenario: &Scenario) -> Vec<PathBuf> {
    let fields = json!(scenario);
    let named = NAMING.iter().filter_map(|field| fields[field].as_str());
    named.flat_map(beside).flat_map(read_with).collect()
}

fn read_with(name: &str) -> Vec<PathBuf> {
    let is_file = |path: &PathBuf| path.is_file();
    let name = Workload::model_of(name).unwrap_or(name);
    let endings = ["et", "json"].into_iter();
    let mut ranks =
        endings.filter_map(|ending| Some((name.strip_suffix(&format!(".0.{ending}"))?, ending)));
    match ranks.next() {
        Some((stem, ending)) => (0..)
            .map(|rank| PathBuf::from(format!("{stem}.{rank}.{ending}")))
            .take_while(is_file)
            .collect(),
        None => Some(PathBuf::from(name))
            .into_iter()
            .filter(is_file)
            .collect(),
    }
}

/// Returns the digest of each file by its name. An unreadable file has none, and fails when the
/// scenario is loaded.
pub fn digests(files: &[PathBuf], known: &mut Digests) -> BTreeMap<String, String> {
    let mut digests = BTreeMap::new();
    for path in files {
        if !known.contains_key(path) {
            let Ok(bytes) = std::fs::read(path) else {
                continue;
            };
            known.insert(path.clone(), digest(&bytes));
        }
        digests.insert(path.display().to_string(), known[path].clone());
    }
    digests
}

/// Computes SHA-256 in hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    let digits = digest.as_ref().iter().map(|byte| format!("{byte:02x}"));
    digits.collect()
}
