//! The cells of a plan: every case with every combination of the ranges. A cell's id covers
//! everything that its result depends on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::{Value, json};

use super::inputs::{self, Digests};
use super::plan::{Key, PlanEntry, SweepPlan, SweepPlanError};
use crate::sim::scenario::Scenario;

/// Most cells of a plan.
pub const MOST: usize = 1_000_000;

/// One run of a sweep.
#[derive(Clone, Debug)]
pub struct SweepCell {
    /// A hash of the version, the scenario and the content of the files that it names.
    pub id: String,
    /// The varied keys with this cell's values: `seed=3 tolerance=10%`.
    pub label: String,
    /// The name of its case, if it has one; the label then begins with it.
    pub case: Option<String>,
    /// The scenario to run.
    pub scenario: Scenario,
    /// The files that the scenario names.
    pub files: Vec<PathBuf>,
}

/// Returns the cells of a plan: cases outermost, then the ranges in the order of the plan, the last
/// one varying fastest.
///
/// # Errors
/// [`SweepPlanError`] when a key or the kind of a value is wrong, a needed key is missing, or two
/// cells are equal.
pub fn of(plan: &SweepPlan) -> Result<Vec<SweepCell>, SweepPlanError> {
    let mut digests = Digests::new();
    let mut cells = Vec::new();
    let mut ids = BTreeSet::new();
    for choice in choices(plan)? {
        let label = choice.label();
        let scenario = scenario(plan, &choice)?;
        let files = inputs::files(&scenario);
        let id = id(&scenario, &inputs::digests(&files, &mut digests));
        if !ids.insert(id.clone()) {
            return Err(SweepPlanError::Same { cell: label });
        }
        cells.push(SweepCell {
            id,
            label,
            case: choice.name().map(shown),
            scenario,
            files,
        });
    }
    Ok(cells)
}

/// Loads every value of the plan once, in the first cell that has it, so that errors of loading
/// name the line of the value.
///
/// # Errors
/// [`SweepPlanError::Line`].
pub fn check(plan: &SweepPlan) -> Result<(), SweepPlanError> {
    let mut tried = BTreeSet::new();
    for choice in choices(plan)? {
        let new: Vec<&PlanEntry> = choice
            .entries()
            .filter(|entry| tried.insert(std::ptr::from_ref(*entry)))
            .collect();
        if new.is_empty() && choice.entries().next().is_some() {
            continue;
        }
        let Err(failure) = scenario(plan, &choice)?.load() else {
            continue;
        };
        let suspects: Vec<&PlanEntry> = new.into_iter().chain(&plan.base).collect();
        return Err(refused(&suspects, failure.to_string()));
    }
    Ok(())
}

/// Returns the entry of a message: the first one that it names, else the first of all.
fn refused(suspects: &[&PlanEntry], message: String) -> SweepPlanError {
    let named = |entry: &&&PlanEntry| match &entry.key {
        Key::Field(_) => entry
            .value
            .as_str()
            .is_some_and(|text| message.contains(text)),
        Key::Set(key) => message.contains(key.rsplit('.').next().unwrap_or(key)),
        Key::Name => false,
    };
    let about = suspects.iter().find(named).or_else(|| suspects.first());
    match about {
        Some(entry) => SweepPlanError::Line {
            line: entry.line,
            message,
        },
        None => SweepPlanError::Missing { message },
    }
}

/// The entries of a cell beyond the base.
struct Choice<'a> {
    case: &'a [PlanEntry],
    varied: Vec<&'a PlanEntry>,
}

impl<'a> Choice<'a> {
    fn entries(&self) -> impl Iterator<Item = &'a PlanEntry> {
        self.case.iter().chain(self.varied.iter().copied())
    }

    fn name(&self) -> Option<&'a Value> {
        let name = self.case.iter().find(|entry| entry.key == Key::Name);
        name.map(|entry| &entry.value)
    }

    fn label(&self) -> String {
        let told = |entry: &PlanEntry| format!("{}={}", entry.key, shown(&entry.value));
        let case = match self.name() {
            Some(name) => vec![shown(name)],
            None => self.case.iter().map(told).collect(),
        };
        let varied = self.varied.iter().map(|entry| told(entry));
        case.into_iter().chain(varied).collect::<Vec<_>>().join(" ")
    }
}

/// Returns the entries beyond the base, cell by cell.
fn choices(plan: &SweepPlan) -> Result<impl Iterator<Item = Choice<'_>>, SweepPlanError> {
    let cases = plan.cases.len().max(1);
    let sizes: Vec<usize> = plan.ranges.iter().map(Vec::len).collect();
    let product = sizes.iter().map(|size| *size as u128);
    let total = product.fold(cases as u128, u128::saturating_mul);
    if total > MOST as u128 {
        return Err(SweepPlanError::Size {
            cells: total,
            most: MOST,
        });
    }
    Ok((0..total as usize).map(move |number| {
        let mut rest = number;
        let mut varied: Vec<&PlanEntry> = Vec::new();
        for range in plan.ranges.iter().rev() {
            varied.push(&range[rest % range.len()]);
            rest /= range.len();
        }
        varied.reverse();
        let case = plan.cases.get(rest).map_or(&[][..], Vec::as_slice);
        Choice { case, varied }
    }))
}

fn scenario(plan: &SweepPlan, choice: &Choice<'_>) -> Result<Scenario, SweepPlanError> {
    let mut written = json!({});
    let entries = || plan.base.iter().chain(choice.entries());
    for entry in entries() {
        entry.put(&mut written);
    }
    serde_json::from_value(written).map_err(|error| {
        let wrong = entries().find_map(|entry| Some((entry, fault(entry)?)));
        match wrong {
            Some((entry, message)) => SweepPlanError::Line {
                line: entry.line,
                message,
            },
            None => SweepPlanError::Missing {
                message: error.to_string(),
            },
        }
    })
}

/// Returns the fault of a single entry: its key, or the kind of its value.
fn fault(entry: &PlanEntry) -> Option<String> {
    let mut alone = json!({});
    entry.put(&mut alone);
    let error = serde_json::from_value::<Scenario>(alone).err()?.to_string();
    if error.starts_with("missing field") {
        return None;
    }
    Some(match error.strip_prefix("unknown field") {
        Some(rest) => format!(
            "unknown key{}",
            rest.replace(", expected one of", "; known keys are")
        ),
        None => format!("{} = {}: {error}", entry.key, entry.value),
    })
}

fn id(scenario: &Scenario, files: &BTreeMap<String, String>) -> String {
    let content = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "scenario": scenario,
        "files": files,
    });
    inputs::digest(content.to_string().as_bytes())[..12].to_owned()
}

fn shown(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "[base]\nfabric = \"single:4@25G\"\nworkload = \"incast:3x64KB\"\n\
                        [ranges]\ntolerance = [\"0%\", \"5%\"]\nseed = \"1..=2\"\n\
                        [[cases]]\ntransport = \"ndp\"\n\
                        [[cases]]\nset.\"transport.entropies\" = 4\n";

    fn cells(text: &str) -> Vec<SweepCell> {
        let plan = SweepPlan::from_toml(text).expect("it can be read");
        of(&plan).expect("its cells make sense")
    }

    #[test]
    fn cells_follow_the_order_of_the_plan() {
        let labels: Vec<String> = cells(PLAN).into_iter().map(|cell| cell.label).collect();
        assert_eq!(
            labels,
            [
                "transport=ndp tolerance=0% seed=1",
                "transport=ndp tolerance=0% seed=2",
                "transport=ndp tolerance=5% seed=1",
                "transport=ndp tolerance=5% seed=2",
                "set.\"transport.entropies\"=4 tolerance=0% seed=1",
                "set.\"transport.entropies\"=4 tolerance=0% seed=2",
                "set.\"transport.entropies\"=4 tolerance=5% seed=1",
                "set.\"transport.entropies\"=4 tolerance=5% seed=2",
            ]
        );
    }

    #[test]
    fn case_names_stand_in_labels() {
        let named = PLAN.replacen("[[cases]]\n", "[[cases]]\nname = \"trims\"\n", 1);
        let (named, plain) = (cells(&named), cells(PLAN));
        assert_eq!(named[0].label, "trims tolerance=0% seed=1");
        assert_eq!(named[0].case.as_deref(), Some("trims"));
        assert_eq!((&named[0].id, &named[4].case), (&plain[0].id, &None));
    }

    #[test]
    fn ids_depend_on_content_not_on_spelling() {
        let ids = |text: &str| {
            cells(text)
                .into_iter()
                .map(|cell| cell.id)
                .collect::<Vec<_>>()
        };
        let written = ids(PLAN);
        let otherwise = PLAN
            .replace("\"1..=2\"", "[2, 1]")
            .replace("\"5%\"", "0.05")
            .replace("[ranges]", "limit = \"10s\"\n[ranges]");
        assert_eq!(
            ids(&otherwise).into_iter().collect::<BTreeSet<_>>(),
            written.iter().cloned().collect()
        );
        assert!(written.iter().all(|id| id.len() == 12), "{written:?}");
    }

    #[test]
    fn a_plan_without_anything_to_vary_is_one_cell() {
        let text = "[base]\nfabric = \"single:4@25G\"\nworkload = \"incast:3x64KB\"\n";
        let cells = cells(text);
        assert_eq!((cells.len(), &*cells[0].label), (1, ""));
    }
}
