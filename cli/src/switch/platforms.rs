//! `gradwire switch platforms`: the features and limits of each platform, and their sources.

use gradwire_switch_config::dialect;
use gradwire_switch_config::limits::{Fact, NotEct, PlatformLimits, Unit};
use gradwire_switch_config::target::SwitchTarget;
use serde_json::{Value, json};

use super::options::Platforms;
use super::site;
use crate::exit::CommandError;

/// Runs the command.
///
/// # Errors
/// [`CommandError::Usage`] when there is no such platform.
pub fn run(options: &Platforms) -> Result<(), CommandError> {
    let targets = targets(options.platform.as_deref())?;
    if options.json {
        let objects = targets.iter().map(object).collect::<Vec<_>>();
        println!("{}", Value::Array(objects));
        return Ok(());
    }
    for target in &targets {
        let limits = limits(target);
        println!("{target}");
        for row in rows(&limits) {
            println!("  {:<26} {}", row.name, row.value);
            if options.sources {
                println!("  {:<26}   {}", "", row.source);
            }
        }
        for remark in &limits.remarks {
            println!("  {:<26} {}", "note", remark.value);
            if options.sources {
                println!("  {:<26}   {}", "", remark.source);
            }
        }
    }
    Ok(())
}

fn targets(given: Option<&str>) -> Result<Vec<SwitchTarget>, CommandError> {
    let Some(text) = given else {
        return Ok(SwitchTarget::all().collect());
    };
    let target = site::target(text)?;
    let same = |other: &SwitchTarget| match text.contains(':') {
        true => *other == target,
        false => other.platform == target.platform,
    };
    Ok(SwitchTarget::all().filter(same).collect())
}

fn limits(target: &SwitchTarget) -> PlatformLimits {
    dialect::of(target.platform).limits(target.version)
}

/// A fact as it is shown.
struct ShownFact {
    name: &'static str,
    value: String,
    source: String,
}

fn row<T>(name: &'static str, fact: &Fact<T>, shown: impl Fn(&T) -> String) -> ShownFact {
    ShownFact {
        name,
        value: shown(&fact.value),
        source: fact.source.clone(),
    }
}

fn rows(limits: &PlatformLimits) -> Vec<ShownFact> {
    let yes = |value: &bool| if *value { "yes" } else { "no" }.to_owned();
    vec![
        row("queues of a port", &limits.queues, u8::to_string),
        row("thresholds", &limits.thresholds, |thresholds| {
            let unit = match thresholds.unit {
                Unit::Bytes(1) => "bytes".to_owned(),
                Unit::Bytes(size) => format!("multiples of {size} bytes"),
                Unit::PercentOfPort => "percents of a port's memory".to_owned(),
            };
            format!("{unit}, {} to {}", thresholds.least, thresholds.most)
        }),
        row("not-ECT above threshold", &limits.not_ect, |value| {
            let text = match value {
                NotEct::DropsEarly => "dropped, while ECT is marked",
                NotEct::Kept => "kept: a sending host has no thresholds",
                NotEct::DropsWhenFull => "dropped only when the queue is full: needs two DSCPs",
                NotEct::ProbablyDropsEarly => "dropped, while ECT is marked, by all signs",
                NotEct::Unknown => "not known: two DSCPs are used",
            };
            text.to_owned()
        }),
        row("drop precedence by DSCP", &limits.drop_precedence, yes),
        row(
            "marks beside precedence",
            &limits.marks_beside_precedence,
            yes,
        ),
        row(
            "order beside a share",
            &limits.order_beside_share,
            |order| match order {
                true => "yes".to_owned(),
                false => "no: with a share all classes of gradients have one queue".to_owned(),
            },
        ),
        row("marks without drops", &limits.marks_without_drops, yes),
        row("alpha of shared memory", &limits.alphas, |value| {
            value.map_or_else(
                || "not written".to_owned(),
                |range| format!("2^{} to 2^{}", range.least, range.most),
            )
        }),
        row("trimming", &limits.trims, |value| {
            value.map_or_else(
                || "none".to_owned(),
                |range| format!("to {} to {} bytes", range.least, range.most),
            )
        }),
        row("paths", &limits.balances, |names| names.join(", ")),
    ]
}

fn object(target: &SwitchTarget) -> Value {
    let limits = limits(target);
    let facts = rows(&limits)
        .into_iter()
        .map(|row| json!({"name": row.name, "value": row.value, "source": row.source}));
    let remarks = limits.remarks.iter();
    let remarks = remarks.map(|remark| json!({"text": remark.value, "source": remark.source}));
    json!({
        "target": target.to_string(),
        "facts": facts.collect::<Vec<_>>(),
        "remarks": remarks.collect::<Vec<_>>(),
    })
}
