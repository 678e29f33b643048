//! `gradwire switch diff` and `undo`: the change to load into a running switch, and the change that
//! takes it back.
//!
//! The plan is only loadable on ports that the switch has, at the speed that the fabric says: the
//! export is compared with it before anything is printed.

use gradwire_switch_config::change::ConfigChange;
use gradwire_switch_config::dialect::Look;
use gradwire_switch_config::effect::{self, Effect};
use gradwire_switch_config::lint::Finding;
use gradwire_switch_config::plan::Plan;
use gradwire_switch_config::ports::{PortListing, SeenPorts};
use gradwire_switch_config::reading::ReadError;
use serde_json::{Value, json};

use super::options::Running;
use super::site::PlanOrigin;
use crate::exit::CommandError;
use gradwire_lab::files;

/// Prints the change.
///
/// # Errors
/// [`CommandError`] names the file and the values that are allowed.
pub fn diff(options: &Running) -> Result<(), CommandError> {
    let loaded = LoadedChange::load(options)?;
    let procedure = loaded.origin.dialect.procedure(&loaded.plan);
    let change = &loaded.change.forward;
    let unreadable = |error| super::tell::unreadable(&options.running, &error);
    let (asked, mended) = loaded.effects(&loaded.plan).map_err(unreadable)?;
    let others = loaded.effects_on_others().map_err(unreadable)?;
    match options.plan.json {
        true => {
            let mut object = loaded.object(change, &procedure);
            object["effects"] = effects_object(&asked, &others);
            object["mended"] = mended.iter().map(super::tell::finding).collect();
            println!("{object}");
        }
        false if change.is_empty() => {
            eprintln!("{}: nothing to change", options.running.display());
        }
        false => {
            print!("{change}");
            super::tell::effects(&asked, &others);
            super::tell::mended(&mended);
            super::tell::warnings(&loaded.plan);
            super::tell::list(&procedure, super::tell::PrintStream::Error);
        }
    }
    Ok(())
}

/// Prints the change that takes another one back.
///
/// # Errors
/// As [`diff`]; and [`CommandError::Usage`] when the configuration is not one from before the
/// change.
pub fn undo(options: &Running) -> Result<(), CommandError> {
    let loaded = LoadedChange::load(options)?;
    let inverse = &loaded.change.inverse;
    if inverse.is_empty() {
        return Err(CommandError::Usage(format!(
            "{}: this has the plan in it already; undo needs the switch's export from before, or \
             roll back on the switch: `gradwire switch verify` tells how",
            options.running.display()
        )));
    }
    match options.plan.json {
        true => println!("{}", loaded.object(inverse, &[])),
        false => print!("{inverse}"),
    }
    Ok(())
}

/// A plan, the export that it is for, and the change between them.
struct LoadedChange<'a> {
    origin: PlanOrigin<'a>,
    plan: Plan,
    seen: SeenPorts,
    running: String,
    change: ConfigChange,
}

impl<'a> LoadedChange<'a> {
    fn load(options: &'a Running) -> Result<Self, CommandError> {
        let origin = PlanOrigin::load(&options.plan)?;
        let plan = origin.plan()?;
        let running = files::text(&options.running)?;
        let unreadable = |error| super::tell::unreadable(&options.running, &error);
        let seen = origin.dialect.ports(&running).map_err(unreadable)?;
        if let Some(mistake) = seen.mistakes(&plan).first() {
            return Err(CommandError::Usage(format!(
                "{}: {}: {}",
                options.running.display(),
                mistake.place,
                mistake.text
            )));
        }
        tell_of_unseen(&plan, &seen);
        let change = origin.dialect.change(&plan, &running).map_err(unreadable)?;
        Ok(Self {
            origin,
            plan,
            seen,
            running,
            change,
        })
    }

    /// What the change does to the ports of a plan, which need not be those that were asked for,
    /// and the mistakes that it mends besides.
    fn effects(&self, plan: &Plan) -> Result<(Vec<Effect>, Vec<Finding>), ReadError> {
        if self.change.forward.is_empty() || plan.site.ports.is_empty() {
            return Ok((Vec::new(), Vec::new()));
        }
        let dialect = self.origin.dialect;
        let after = dialect.apply(&self.running, &self.change.forward)?;
        let before = dialect.read(plan, &self.running)?;
        let after = dialect.read(plan, &after)?;
        let names = plan.site.ports.iter().map(|port| port.name.as_str());
        let mended = effect::mended(&before, &after);
        Ok((effect::effects(names, &before, &after), mended))
    }

    /// What it does to the other ports, since some settings are of the whole switch.
    fn effects_on_others(&self) -> Result<Vec<Effect>, ReadError> {
        let mut plan = self.plan.clone();
        plan.site.ports = self.seen.others(&self.plan);
        let (effects, _) = self.effects(&plan)?;
        Ok(effects)
    }

    fn object(&self, change: &str, procedure: &[Look]) -> Value {
        json!({
            "target": self.plan.target.to_string(),
            "origin": self.plan.site.origin,
            "change": change,
            "procedure": procedure,
        })
    }
}

/// Tells which ports an export does not name that lists only those with settings.
fn tell_of_unseen(plan: &Plan, seen: &SeenPorts) {
    if seen.listing == PortListing::Whole || seen.rates.is_empty() {
        return;
    }
    let ports = plan.site.ports.iter();
    let unseen = ports.filter(|port| !seen.rates.contains_key(&port.name));
    let unseen: Vec<&str> = unseen.map(|port| port.name.as_str()).collect();
    if !unseen.is_empty() {
        eprintln!(
            "warning: the export names only ports with settings, and not {}: see that the switch \
             has such ports",
            unseen.join(", ")
        );
    }
}

fn effects_object(asked: &[Effect], others: &[Effect]) -> Value {
    let object = |effect: &Effect, asked: bool| {
        let settings = effect.settings.iter().map(|setting| {
            json!({
                "setting": setting.setting,
                "before": setting.before,
                "after": setting.after,
            })
        });
        json!({
            "ports": effect.ports,
            "asked": asked,
            "settings": settings.collect::<Vec<_>>(),
        })
    };
    let asked = asked.iter().map(|effect| object(effect, true));
    let others = others.iter().map(|effect| object(effect, false));
    asked.chain(others).collect()
}
