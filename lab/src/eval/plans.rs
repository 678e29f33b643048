//! The plans of the evaluation, as text that `gradwire sim sweep` reads, too.

use std::path::Path;

use super::request::Extent;
use crate::error::LabError;
use crate::files;
use crate::sweep::cells::{self, SweepCell};
use crate::sweep::plan;

/// A plan that is part of this program.
#[derive(Clone, Copy, Debug)]
pub struct EvalPlan {
    /// Its file's name.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
    /// Approximate CPU seconds of one of its cells on a core of 2024, for estimates of the
    /// remaining time.
    pub cell_s: f64,
}

/// The plans of a table.
#[derive(Clone, Copy, Debug)]
pub struct TablePlans {
    /// Those of the quick evaluation.
    pub quick: &'static [EvalPlan],
    /// Those of the whole one.
    pub whole: &'static [EvalPlan],
    /// Those of the thorough one.
    pub thorough: &'static [EvalPlan],
}

impl TablePlans {
    /// Returns those of an evaluation.
    pub fn of(&self, extent: Extent) -> &'static [EvalPlan] {
        match extent {
            Extent::Quick => self.quick,
            Extent::Whole => self.whole,
            Extent::Thorough => self.thorough,
        }
    }
}

macro_rules! plan {
    ($name:literal, $cell_s:literal) => {
        EvalPlan {
            name: $name,
            text: include_str!(concat!("plans/", $name)),
            cell_s: $cell_s,
        }
    };
}

/// All models in a ring at all rates, with a scheduler and without.
pub const RING: EvalPlan = plan!("ring.toml", 2.0);
/// The same with servers, without a scheduler.
pub const SERVERS_OFF: EvalPlan = plan!("servers-off.toml", 2.0);
/// The same with servers and a scheduler.
pub const SERVERS_ON: EvalPlan = plan!("servers-on.toml", 2.0);
/// The same with smaller parts.
pub const SERVERS_ON_SMALL: EvalPlan = plan!("servers-on-small.toml", 3.0);
/// Three models with servers at one rate, without a scheduler.
pub const SERVERS_OFF_QUICK: EvalPlan = plan!("servers-off-quick.toml", 1.0);
/// The same with a scheduler.
pub const SERVERS_ON_QUICK: EvalPlan = plan!("servers-on-quick.toml", 1.0);
/// The same with smaller parts.
pub const SERVERS_ON_SMALL_QUICK: EvalPlan = plan!("servers-on-small-quick.toml", 1.5);
/// Every chunk with every credit.
pub const SEARCH: EvalPlan = plan!("search.toml", 0.6);
/// The same for more models and rates.
pub const SEARCH_THOROUGH: EvalPlan = plan!("search-thorough.toml", 0.6);
/// A small grid.
pub const SEARCH_QUICK: EvalPlan = plan!("search-quick.toml", 0.3);
/// Three models by all transports on 144 hosts, with servers and in a ring.
pub const FABRIC: EvalPlan = plan!("fabric.toml", 2.7);
/// All models, twice as large, with servers.
pub const FABRIC_SERVERS_THOROUGH: EvalPlan = plan!("fabric-servers-thorough.toml", 8.0);
/// The same in a ring.
pub const FABRIC_RING_THOROUGH: EvalPlan = plan!("fabric-ring-thorough.toml", 8.0);
/// One model by all transports.
pub const FABRIC_QUICK: EvalPlan = plan!("fabric-quick.toml", 2.7);
/// One model by all transports, where links lose packets.
pub const LOSSES: EvalPlan = plan!("losses.toml", 13.0);
/// The same with more seeds.
pub const LOSSES_THOROUGH: EvalPlan = plan!("losses-thorough.toml", 13.0);
/// A few of these.
pub const LOSSES_QUICK: EvalPlan = plan!("losses-quick.toml", 3.5);
/// Ranks that are slow for a while.
pub const STRAGGLERS: EvalPlan = plan!("stragglers.toml", 50.0);
/// The same with more seeds.
pub const STRAGGLERS_THOROUGH: EvalPlan = plan!("stragglers-thorough.toml", 50.0);
/// Ranks that receive slowly for a while.
pub const STRAGGLERS_RECEIVE: EvalPlan = plan!("stragglers-receive.toml", 50.0);
/// A few of these.
pub const STRAGGLERS_QUICK: EvalPlan = plan!("stragglers-quick.toml", 2.0);
/// Part by part.
pub const STEPS: EvalPlan = plan!("steps.toml", 3.5);
/// Part by part, two models, twice as large.
pub const STEPS_THOROUGH: EvalPlan = plan!("steps-thorough.toml", 8.0);
/// Part by part, one seed.
pub const STEPS_QUICK: EvalPlan = plan!("steps-quick.toml", 3.5);

/// One model by all transports, by load and memory.
pub const LOADS: EvalPlan = plan!("loads.toml", 8.5);
/// The same with more sizes of memory and seeds, and in a ring.
pub const LOADS_THOROUGH: EvalPlan = plan!("loads-thorough.toml", 8.5);
/// A few of these.
pub const LOADS_QUICK: EvalPlan = plan!("loads-quick.toml", 8.5);

/// Permutations, incasts and an all-to-all by all transports, ten seeds.
pub const RIVALS_FLOWS: EvalPlan = plan!("rivals-flows.toml", 1.0);
/// The same with two seeds.
pub const RIVALS_FLOWS_QUICK: EvalPlan = plan!("rivals-flows-quick.toml", 1.0);
/// A permutation on fabrics with faults, ten seeds.
pub const RIVALS_FAULTS: EvalPlan = plan!("rivals-faults.toml", 1.0);
/// The same with two seeds.
pub const RIVALS_FAULTS_QUICK: EvalPlan = plan!("rivals-faults-quick.toml", 1.0);
/// Collectives of 64 hosts, ten seeds.
pub const RIVALS_COLLECTIVES: EvalPlan = plan!("rivals-collectives.toml", 2.0);
/// The same with two seeds.
pub const RIVALS_COLLECTIVES_QUICK: EvalPlan = plan!("rivals-collectives-quick.toml", 2.0);
/// An incast and a permutation beside other traffic, ten seeds.
pub const RIVALS_BESIDE: EvalPlan = plan!("rivals-beside.toml", 2.0);
/// The same with two seeds.
pub const RIVALS_BESIDE_QUICK: EvalPlan = plan!("rivals-beside-quick.toml", 2.0);
/// Permutations, slow links and a ring on 1,024 hosts, ten seeds.
pub const RIVALS_LARGE: EvalPlan = plan!("rivals-large.toml", 15.0);

/// A plan to run: one of this program, or the user's version of it.
#[derive(Clone, Debug)]
pub struct Written {
    /// Its file's name.
    pub name: &'static str,
    /// Its text.
    pub text: String,
    /// Approximate CPU seconds of one of its cells.
    pub cell_s: f64,
}

impl EvalPlan {
    /// Returns the plan, or the file of its name if the folder has one.
    ///
    /// # Errors
    /// [`LabError`] when the file exists and cannot be read.
    pub fn read(&self, folder: Option<&Path>) -> Result<Written, LabError> {
        let changed = folder.map(|folder| folder.join(self.name));
        let text = match changed.filter(|path| path.exists()) {
            Some(path) => files::text(&path)?,
            None => self.text.to_owned(),
        };
        Ok(Written {
            name: self.name,
            text,
            cell_s: self.cell_s,
        })
    }
}

impl Written {
    /// Returns its cells.
    ///
    /// # Errors
    /// [`LabError`] names the faulty line.
    pub fn cells(&self) -> Result<Vec<SweepCell>, LabError> {
        let wrong = |error| LabError::Usage(format!("the plan {}: {error}", self.name));
        let plan = plan::SweepPlan::from_toml(&self.text).map_err(wrong)?;
        cells::of(&plan).map_err(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tables::{Content, RIVAL_TABLES, TABLES};
    use super::*;

    fn all() -> impl Iterator<Item = EvalPlan> {
        let plans = TABLES
            .iter()
            .chain(&RIVAL_TABLES)
            .flat_map(|table| match table.content {
                Content::Simulated(plans, _) => [plans.quick, plans.whole, plans.thorough].concat(),
                Content::Trained(_) => Vec::new(),
            });
        plans.collect::<Vec<_>>().into_iter()
    }

    #[test]
    fn every_plan_is_one_of_valid_cells() {
        for plan in all() {
            let written = plan::SweepPlan::from_toml(plan.text).expect(plan.name);
            if let Err(error) = cells::check(&written) {
                panic!("{}: {error}", plan.name);
            }
            let cells = plan.read(None).and_then(|plan| plan.cells());
            let cells = cells.expect(plan.name);
            assert!(!cells.is_empty(), "{} has cells", plan.name);
            let named = cells.iter().all(|cell| cell.case.is_some());
            assert!(named, "{}: the cases have names", plan.name);
        }
    }

    #[test]
    fn the_quick_evaluation_is_a_matter_of_minutes() {
        let (mut quick_s, mut whole_s) = (0.0, 0.0);
        for table in TABLES {
            let Content::Simulated(plans, _) = table.content else {
                continue;
            };
            let seconds = |plans: &[EvalPlan]| -> f64 {
                let cells = |plan: &EvalPlan| {
                    let cells = plan.read(None).and_then(|plan| plan.cells());
                    cells.expect(plan.name).len()
                };
                plans
                    .iter()
                    .map(|plan| plan.cell_s * cells(plan) as f64)
                    .sum()
            };
            quick_s += seconds(plans.quick);
            whole_s += seconds(plans.whole);
        }
        assert!(quick_s / 2.0 < 120.0, "{quick_s} s on one core");
        assert!(whole_s / 2.0 < 30.0 * 60.0, "{whole_s} s on one core");
    }
}
