//! The plan of one switch, from a job, a fabric and the options.

use std::path::Path;

use gradwire_fabric::fitting;
use gradwire_fabric::policy::QosPolicy;
use gradwire_fabric::topology::{Device, Fabric};
use gradwire_lab::job_file;
use gradwire_protocol::job::Job;
use gradwire_protocol::priority::EarlyDrop;
use gradwire_protocol::units::Rate;
use gradwire_switch_config::dialect::{self, Dialect};
use gradwire_switch_config::plan::{Note, NoteKind, Plan, Site, SwitchPort};
use gradwire_switch_config::target::SwitchTarget;

use super::plan_options::PlanOptions;
use crate::exit::CommandError;
use gradwire_lab::files;

/// A job on a fabric, for switches of a platform.
pub struct PlanOrigin<'a> {
    /// The platform.
    pub target: SwitchTarget,
    /// How it is spoken.
    pub dialect: &'static dyn Dialect,
    job: Job,
    fabric: Fabric,
    policy: QosPolicy,
    options: &'a PlanOptions,
}

impl<'a> PlanOrigin<'a> {
    /// Reads the files that the options name.
    ///
    /// # Errors
    /// [`CommandError`] names the file or option and the values that are allowed.
    pub fn load(options: &'a PlanOptions) -> Result<Self, CommandError> {
        let target = target(&options.platform)?;
        let job = match options.job.as_str() {
            "default" => Job::default(),
            path => job_file::read(Path::new(path))?,
        };
        let fabric = files::fabric(&options.fabric)?;
        let mut policy = fitting::policy_of_job(&job, &fabric);
        policy.reserved.clone_from(&options.site.reserve);
        policy.rtt = options.site.rtt.unwrap_or(policy.rtt);
        policy.trims_to = options.trim;
        Ok(Self {
            target,
            dialect: dialect::of(target.platform),
            job,
            fabric,
            policy,
            options,
        })
    }

    /// Names of all switches of the fabric.
    pub fn switches(&self) -> impl Iterator<Item = &str> {
        let switches = self.fabric.switches.iter();
        switches.map(|switch| switch.name.as_str())
    }

    /// The switch that was asked for, or the first.
    ///
    /// # Errors
    /// [`CommandError::Usage`] names the switches that there are.
    pub fn switch(&self) -> Result<&str, CommandError> {
        let mut names = self.switches();
        let found = match &self.options.site.switch {
            Some(wanted) => names.find(|name| name == wanted),
            None => names.next(),
        };
        found.ok_or_else(|| {
            let known: Vec<&str> = self.switches().take(20).collect();
            CommandError::Usage(match &self.options.site.switch {
                Some(wanted) => format!(
                    "--switch {wanted}: {} has {}",
                    self.options.fabric,
                    known.join(", ")
                ),
                None => format!("{}: the fabric has no switch", self.options.fabric),
            })
        })
    }

    /// The plan of the switch that was asked for.
    ///
    /// # Errors
    /// [`CommandError`] names the feature that the platform lacks, or the contradiction.
    pub fn plan(&self) -> Result<Plan, CommandError> {
        self.plan_of(self.switch()?)
    }

    /// The plan of a switch of the fabric.
    ///
    /// # Errors
    /// As [`Self::plan`].
    pub fn plan_of(&self, switch: &str) -> Result<Plan, CommandError> {
        let options = self.options;
        let site = Site {
            origin: format!("job {}, fabric {}, {switch}", options.job, options.fabric),
            ports: self.ports(switch)?,
            buffer: self.fabric.buffer,
        };
        let limits = self.dialect.limits(self.target.version);
        let asked = site.ports.len();
        let plan = Plan::new(self.target, &limits, &self.policy, site);
        let mut plan = plan.map_err(|error| CommandError::Usage(error.to_string()))?;
        plan.notes.extend(self.early_drop_note());
        Ok(match asked < self.rates(switch).len() {
            true => plan.for_these_ports_only(),
            false => plan,
        })
    }

    /// A note where the job's `loss.early_drop` costs time on this fabric.
    fn early_drop_note(&self) -> Option<Note> {
        let better = fitting::early_drop(&self.fabric);
        let (word, why) = match better {
            _ if self.job.greatest_tolerance().is_none() => return None,
            EarlyDrop::Off => (
                "off",
                "the core carries what all hosts send, so early drops cost more than they save",
            ),
            EarlyDrop::On => ("on", "the core is oversubscribed, so early drops save time"),
        };
        (self.job.loss.early_drop != better).then(|| Note {
            kind: NoteKind::Warning,
            text: format!("{why}; set loss.early_drop = \"{word}\" in the job"),
        })
    }

    /// Speeds of a switch's links, in the order of the fabric.
    fn rates(&self, switch: &str) -> Vec<Rate> {
        let at = self.switches().position(|name| name == switch);
        let device = at.map(|at| Device::Switch(at as u32));
        let links = self.fabric.links.iter();
        let links = links.filter(|link| device.is_some_and(|device| link.ends.contains(&device)));
        links.map(|link| link.rate).collect()
    }

    fn ports(&self, switch: &str) -> Result<Vec<SwitchPort>, CommandError> {
        let rates = self.rates(switch);
        let names = match &self.options.site.ports {
            Some(text) => port_names(text)?,
            None => (0..rates.len())
                .map(|number| self.dialect.port_name(number))
                .collect(),
        };
        if names.len() > rates.len() {
            return Err(CommandError::Usage(format!(
                "--ports names {} ports; {switch} has {} links",
                names.len(),
                rates.len()
            )));
        }
        let ports = names.into_iter().zip(rates);
        Ok(ports
            .map(|(name, rate)| SwitchPort { name, rate })
            .collect())
    }
}

/// The target of `--platform`.
///
/// # Errors
/// [`CommandError::Usage`] lists the platforms, or the versions of the one that was given.
pub fn target(text: &str) -> Result<SwitchTarget, CommandError> {
    let target = SwitchTarget::read(text);
    target.map_err(|error| CommandError::Usage(format!("--platform {text}: {error}")))
}

/// Reads `swp1-4,swp7`: names with commas, of which the last number may be a range.
fn port_names(text: &str) -> Result<Vec<String>, CommandError> {
    let mut names = Vec::new();
    for part in text.split(',').map(str::trim) {
        let range = part.rsplit_once('-').and_then(|(head, last)| {
            let digits = head.trim_end_matches(|c: char| c.is_ascii_digit()).len();
            let (stem, first) = head.split_at(digits);
            Some((stem, first.parse::<u16>().ok()?, last.parse::<u16>().ok()?))
        });
        match range {
            Some((stem, first, last)) if !stem.is_empty() && first <= last => {
                names.extend((first..=last).map(|number| format!("{stem}{number}")));
            }
            _ => names.push(part.to_owned()),
        }
    }
    let allowed = |name: &&String| {
        name.is_empty()
            || name
                .chars()
                .any(|c| c.is_whitespace() || c.is_control() || "\"'|\\".contains(c))
    };
    match names.iter().find(allowed) {
        Some(wrong) => Err(CommandError::Usage(format!(
            "--ports {text}: `{wrong}` is no name of a port; write swp1-4,swp7"
        ))),
        None => Ok(names),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_listed_or_counted() {
        let names = |text| port_names(text).map_err(|error| error.to_string());
        let swp = |numbers: &[u8]| numbers.iter().map(|n| format!("swp{n}")).collect();
        assert_eq!(names("swp1-3,swp7"), Ok(swp(&[1, 2, 3, 7])));
        assert_eq!(
            names("et-0/0/0-2"),
            Ok(["et-0/0/0", "et-0/0/1", "et-0/0/2"]
                .map(str::to_owned)
                .into())
        );
        assert_eq!(names("et-0/0/1"), Ok(vec!["et-0/0/1".to_owned()]));
        assert!(names("swp1,,swp2").expect_err("empty").contains("no name"));
    }
}
