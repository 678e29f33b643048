//! `gradwire switch render`: prints or writes configurations, and explains the decisions.

use std::path::Path;

use gradwire_lab::error::LabError;
use gradwire_switch_config::plan::{Plan, PlanQueue, Purpose, Selection, ThresholdProfile};
use gradwire_switch_config::target::Platform;
use serde_json::{Value, json};

use super::options::Render;
use super::site::PlanOrigin;
use crate::exit::CommandError;

/// Runs the command.
///
/// # Errors
/// [`CommandError`] names the feature that the platform lacks, or the file that cannot be written.
pub fn run(options: &Render) -> Result<(), CommandError> {
    let origin = PlanOrigin::load(&options.plan)?;
    match &options.out {
        Some(folder) => write_all(&origin, options, folder),
        None => print(&origin, options),
    }
}

fn print(origin: &PlanOrigin<'_>, options: &Render) -> Result<(), CommandError> {
    let switch = origin.switch()?;
    let plan = origin.plan_of(switch)?;
    let config = origin.dialect.render(&plan);
    if options.plan.json {
        println!("{}", object(&plan, switch, &config));
        return Ok(());
    }
    tell(&plan, switch);
    let others = origin.switches().count() - 1;
    if options.plan.site.switch.is_none() && others > 0 {
        eprintln!("{others} more switches: --switch NAME for one of them, --out FOLDER for all");
    }
    print!("{config}");
    Ok(())
}

fn write_all(origin: &PlanOrigin<'_>, options: &Render, folder: &Path) -> Result<(), CommandError> {
    let one = options.plan.site.switch.is_some();
    let switches = match one {
        true => vec![origin.switch()?],
        false => origin.switches().collect(),
    };
    let plans = switches.iter().map(|switch| origin.plan_of(switch));
    let plans = plans.collect::<Result<Vec<_>, _>>()?;
    std::fs::create_dir_all(folder)
        .map_err(LabError::system(format!("make {}", folder.display())))?;
    for (switch, plan) in switches.iter().zip(&plans) {
        let name = switch.replace([' ', '/'], "-");
        let path = folder.join(format!("{name}.{}", ending(plan.target.platform)));
        std::fs::write(&path, origin.dialect.render(plan))
            .map_err(LabError::system(format!("write {}", path.display())))?;
        println!("{}", path.display());
    }
    if let (Some(switch), Some(plan)) = (switches.first(), plans.first()) {
        tell(plan, switch);
    }
    Ok(())
}

/// How files of a platform end.
fn ending(platform: Platform) -> &'static str {
    match platform {
        Platform::Sonic | Platform::OpenConfig => "json",
        Platform::Nvue => "yaml",
        Platform::Eos | Platform::Nxos => "cfg",
        Platform::Junos => "set",
        Platform::Linux => "sh",
    }
}

/// Tells on standard error the use of each queue, and the decisions.
fn tell(plan: &Plan, switch: &str) {
    eprintln!("{}: {switch}, {} ports", plan.target, plan.site.ports.len());
    for queue in &plan.queues {
        eprintln!("  queue {:<2} {}", queue.number, described(queue, plan));
    }
    for note in &plan.notes {
        eprintln!("  {:<8} {}", note.kind.to_string(), note.text);
    }
}

fn described(queue: &PlanQueue, plan: &Plan) -> String {
    let dscps: Vec<String> = queue.dscps.iter().map(ToString::to_string).collect();
    let droppable: Vec<String> = queue.droppable.iter().map(ToString::to_string).collect();
    let droppable = match droppable.is_empty() {
        true => String::new(),
        false => format!(", droppable packets {}", droppable.join(", ")),
    };
    let depth = match (queue.marks_above, plan.selection) {
        (None, _) => "drops only what it has no room for",
        (Some(_), _) if !queue.has_gradients() => "marks ECT above its threshold",
        (Some(_), Selection::Ecn) => "marks ECT, drops not-ECT above its threshold",
        (Some(_), Selection::Precedence) => "drops droppable DSCPs above its threshold",
    };
    let alike = plan.queues.iter().filter(|other| other.turn == queue.turn);
    let weight = match (queue.percent(), alike.count()) {
        (None, _) => String::new(),
        (Some(percent), 1) => format!("; weight {percent} %"),
        (Some(percent), _) => format!("; in order within {percent} % of the link"),
    };
    format!(
        "{:<9} DSCP {}{droppable}{weight}; {depth}",
        queue.name(),
        dscps.join(", ")
    )
}

/// The object of `--json`.
fn object(plan: &Plan, switch: &str, config: &str) -> Value {
    let notes = plan.notes.iter();
    let notes = notes.map(|note| json!({"kind": note.kind.to_string(), "text": note.text}));
    json!({
        "target": plan.target.to_string(),
        "switch": switch,
        "origin": plan.site.origin,
        "config": config,
        "queues": plan.queues.iter().map(queue_object).collect::<Vec<_>>(),
        "profiles": plan.profiles.iter().map(profile_object).collect::<Vec<_>>(),
        "selection": match plan.selection {
            Selection::Ecn => "ecn",
            Selection::Precedence => "drop-precedence",
        },
        "notes": notes.collect::<Vec<_>>(),
    })
}

fn queue_object(queue: &PlanQueue) -> Value {
    let class = match queue.purpose {
        Purpose::Data(class) => Some(class.0),
        Purpose::Control => Some(0),
        Purpose::Reserved | Purpose::Gradients | Purpose::Others => None,
    };
    json!({
        "name": queue.name(),
        "class": class,
        "queue": queue.number,
        "dscps": queue.dscps.iter().map(|dscp| dscp.0).collect::<Vec<_>>(),
        "droppable_dscps": queue.droppable.iter().map(|dscp| dscp.0).collect::<Vec<_>>(),
        "percent": queue.percent(),
        "marks_above": queue.marks_above.map(|share| share.get()),
    })
}

fn profile_object(profile: &ThresholdProfile) -> Value {
    json!({
        "name": profile.name,
        "rate_bps": profile.rate.as_bits_per_second(),
        "share": profile.share.get(),
        "exact_bytes": profile.threshold.exact.get(),
        "low_bytes": profile.threshold.low_bytes(),
        "high_bytes": profile.threshold.high_bytes(),
    })
}
