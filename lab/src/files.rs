//! Fabrics and workloads as they are given: one-line forms, and files of other tools by their
//! ending.

use std::io::ErrorKind;
use std::path::Path;

use gradwire_fabric::topology::{Device, Fabric};
use gradwire_workloads::arrivals::DrawLimits;
use gradwire_workloads::connection_matrix::{ConnectionMatrix, FailedUplink as Broken};
use gradwire_workloads::model::{Model, NAMES};
use gradwire_workloads::workload::{Hosts, Workload};

use crate::error::LabError;

/// The text of a file.
///
/// # Errors
/// [`LabError::Read`] names the file and the system's reason.
pub fn text(path: &Path) -> Result<String, LabError> {
    std::fs::read_to_string(path).map_err(unreadable(path))
}

/// The text of a file; if it is absent, the error ends with advice.
///
/// # Errors
/// As [`text()`].
pub fn text_advised(path: &Path, advice: &str) -> Result<String, LabError> {
    std::fs::read_to_string(path).map_err(|source| match source.kind() {
        ErrorKind::NotFound => LabError::Usage(format!(
            "cannot read {}: {source}; {advice}",
            path.display()
        )),
        _ => unreadable(path)(source),
    })
}

/// The bytes of a file.
///
/// # Errors
/// [`LabError::Read`] names the file and the system's reason.
pub fn bytes(path: &Path) -> Result<Vec<u8>, LabError> {
    std::fs::read(path).map_err(unreadable(path))
}

/// The failure of a file or folder that cannot be read.
pub fn unreadable(path: &Path) -> impl FnOnce(std::io::Error) -> LabError {
    |source| LabError::Read {
        path: path.to_owned(),
        source,
    }
}

/// The fabric of a one-line form or of a file.
///
/// # Errors
/// [`LabError`] names the file, its line where there is one, and the values that are allowed.
pub fn fabric(given: &str) -> Result<Fabric, LabError> {
    let advice = "a fabric can also be one line, such as leaf-spine:9x16x4@100G; `gradwire sim \
                  workloads` lists the shapes and the keys of fabric.toml";
    let text = || text_advised(Path::new(given), advice);
    match ending(given) {
        Some("toml") => Fabric::from_toml(&text()?).map_err(|error| LabError::input(given, error)),
        Some("topo") => Fabric::from_htsim(&text()?).map_err(|error| LabError::input(given, error)),
        Some("txt") => Fabric::from_hpcc(&text()?).map_err(|error| LabError::input(given, error)),
        Some(other) => Err(unknown(given, other, "fabrics are .toml, .topo and .txt")),
        None => Fabric::from_shape(given).map_err(|error| LabError::input(given, error)),
    }
}

/// The model of a name, or of a file where `given` is the name of one.
///
/// # Errors
/// [`LabError`] names the line of a file that is wrong, or the models that there are.
pub fn model(given: &str) -> Result<Model, LabError> {
    let path = Path::new(given);
    if NAMES.contains(&given) {
        return Model::named(given).map_err(|error| LabError::Usage(error.to_string()));
    }
    let model = match path.extension().and_then(|ending| ending.to_str()) {
        Some("txt") => Model::from_layers(given, &text(path)?),
        Some("et" | "json") => Model::from_chakra(given, &bytes(path)?),
        ending if ending == Some("csv") || path.is_file() => Model::from_csv(given, &text(path)?),
        _ => return Model::named(given).map_err(|error| LabError::Usage(error.to_string())),
    };
    model.map_err(|error| LabError::input(given, error))
}

/// Separates workloads that run side by side.
const BESIDE: &str = " + ";

/// The workloads that a text has side by side.
pub fn beside(given: &str) -> impl Iterator<Item = &str> {
    given.split(BESIDE).map(str::trim)
}

/// Sets the draws of workloads side by side apart.
const BESIDE_SEED: u64 = 0x9E37_79B9_7F4A_7C15;

/// The workloads of one-line forms or of files, side by side, for a fabric; links that a connection
/// matrix says have failed are taken out of that. Also the text and the flows of each part.
///
/// # Errors
/// [`LabError`] names the file, its line where there is one, and the values that are allowed.
pub fn workload(
    given: &str,
    fabric: &mut Fabric,
    seed: u64,
    limits: DrawLimits,
) -> Result<(Workload, Vec<(String, usize)>), LabError> {
    let mut parts = beside(given).zip(0..);
    let (first, _) = parts.next().expect("a text has a first part");
    let mut all = one_workload(first, fabric, seed, limits)?;
    let mut flows = vec![(first.to_owned(), all.flows.len())];
    for (part, number) in parts {
        let seed = seed ^ BESIDE_SEED.wrapping_mul(number);
        let other = one_workload(part, fabric, seed, limits)?;
        flows.push((part.to_owned(), other.flows.len()));
        all = all
            .beside(other)
            .map_err(|error| LabError::input(given, error))?;
    }
    Ok((all, flows))
}

fn one_workload(
    given: &str,
    fabric: &mut Fabric,
    seed: u64,
    limits: DrawLimits,
) -> Result<Workload, LabError> {
    let hosts = Hosts {
        count: fabric.hosts,
        rate: fabric.host_rate(),
    };
    if let Some(name) = Workload::model_of(given) {
        let models = [model(name)?];
        let workload = Workload::from_pattern_with(given, hosts, seed, &models);
        return workload.map_err(|error| LabError::input(given, error));
    }
    let Some(ending) = ending(given) else {
        let workload = Workload::from_pattern_within(given, hosts, seed, limits);
        return workload.map_err(|error| LabError::input(given, error));
    };
    let text = || text(Path::new(given));
    let read = match ending {
        "cm" => return connection_matrix(given, &text()?, fabric),
        "goal" => Workload::from_goal(&text()?),
        "txt" => Workload::from_layers(&text()?, fabric.hosts),
        "et" | "json" => Workload::from_chakra(&traces(given, ending)?),
        other => {
            let known = "workloads are .cm, .goal, .txt, .et and .json";
            return Err(unknown(given, other, known));
        }
    };
    let mut workload = read.map_err(|error| LabError::input(given, error))?;
    workload.name = given.to_owned();
    Ok(workload)
}

/// The traces of all ranks: of `NAME.0.et` those of `NAME.1.et` and so on too, as many as there
/// are; any other file is the trace of the only rank.
fn traces(given: &str, ending: &str) -> Result<Vec<Vec<u8>>, LabError> {
    let Some(name) = given.strip_suffix(&format!(".0.{ending}")) else {
        return Ok(vec![bytes(Path::new(given))?]);
    };
    let mut traces = vec![bytes(Path::new(given))?];
    loop {
        let path = format!("{name}.{}.{ending}", traces.len());
        match Path::new(&path).exists() {
            true => traces.push(bytes(Path::new(&path))?),
            false => return Ok(traces),
        }
    }
}

/// The ending of a file's name; `None` of a one-line form.
fn ending(given: &str) -> Option<&str> {
    let ending = Path::new(given).extension()?.to_str()?;
    let letters = ending.bytes().all(|byte| byte.is_ascii_alphabetic());
    (letters && !given.contains('@')).then_some(ending)
}

fn unknown(given: &str, ending: &str, known: &str) -> LabError {
    LabError::input(
        given,
        format!("unknown ending `.{ending}`; files of {known}"),
    )
}

fn connection_matrix(given: &str, text: &str, fabric: &mut Fabric) -> Result<Workload, LabError> {
    let matrix = ConnectionMatrix::parse(text).map_err(|error| LabError::input(given, error))?;
    if matrix.hosts > fabric.hosts {
        let (needed, hosts) = (matrix.hosts, fabric.hosts);
        let text = format!("`Nodes {needed}`: the fabric has only {hosts} hosts; use a larger one");
        return Err(LabError::input(given, text));
    }
    let mut broken = Vec::new();
    for failure in &matrix.failures {
        let link = uplink(fabric, failure).ok_or_else(|| {
            let Broken { tier, switch, link } = failure;
            let text = format!("failure of uplink {link} of switch {switch} of tier {tier}");
            LabError::input(given, format!("{text}: the fabric has no such link"))
        })?;
        broken.push(link);
    }
    let mut index = 0;
    fabric.links.retain(|_| {
        index += 1;
        !broken.contains(&(index - 1))
    });
    Ok(Workload {
        name: given.to_owned(),
        ..matrix.workload
    })
}

/// Index of the link that a failure means: an uplink of a switch by its number within its tier.
fn uplink(fabric: &Fabric, failure: &Broken) -> Option<usize> {
    let of_tier = |tier: u8| {
        let switches = fabric.switches.iter().enumerate();
        switches.filter(move |(_, switch)| switch.tier == tier)
    };
    let (switch, _) = of_tier(failure.tier).nth(failure.switch as usize)?;
    let this = Device::Switch(switch as u32);
    let above = |device: Device| match device {
        Device::Switch(other) => fabric.switches[other as usize].tier > failure.tier,
        Device::Host(_) => false,
    };
    let links = fabric.links.iter().enumerate();
    let mut uplinks = links.filter(|(_, link)| match link.ends {
        [low, high] if low == this => above(high),
        [high, low] if low == this => above(high),
        _ => false,
    });
    uplinks.nth(failure.link as usize).map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_one_line_are_no_files() {
        for form in [
            "fat-tree:k=16@2.5G",
            "permutation:2MB",
            "poisson:websearch@0.6:10ms",
        ] {
            assert_eq!(ending(form), None, "{form}");
        }
        assert_eq!(ending("a/b.c/fabric.toml"), Some("toml"));
        assert_eq!(ending("perm_128.cm"), Some("cm"));
    }

    #[test]
    fn failures_of_matrices_are_uplinks() {
        let fabric = Fabric::from_shape("fat-tree:k=4@100G").expect("it is a shape");
        let broken = |tier, switch, link| Broken { tier, switch, link };
        let index = uplink(&fabric, &broken(0, 3, 1)).expect("edges have two uplinks");
        let name = fabric.link_name(index as u32);
        let edges = fabric.switches.iter().filter(|switch| switch.tier == 0);
        let edge = edges
            .map(|switch| &switch.name)
            .nth(3)
            .expect("there are eight");
        assert!(
            name.contains(edge.as_str()) && name.contains("agg"),
            "{name}"
        );
        assert_eq!(uplink(&fabric, &broken(0, 3, 2)), None);
        assert_eq!(uplink(&fabric, &broken(2, 0, 0)), None);
        assert_eq!(uplink(&fabric, &broken(0, 8, 0)), None);
    }
}
