//! Commands for people, and the counters of `nv show interface PORT counters qos -o json`.
//!
//! By queue, `egress-queue-stats` has `tx-frames`, `wred-discards`, in newer releases
//! `ecn-marked-frames`, and `tx-uc-buffer-discards`, which older ones count in bytes (NVUE
//! reference, "counters qos egress-queue-stats"). Bytes are no packets: they are told as one
//! packet, so that losses are seen, not sized. The output names no port: one of several ports is
//! given with each, as `{"swp1": {...}, "swp2": {...}}`.

use serde_json::{Map, Value};

use super::render;
use crate::counters::{QueueCount, number_of};
use crate::dialect::contract::{Look, steps};
use crate::plan::Plan;
use crate::reading::ReadError;
use gradwire_fabric::policy::Balance;

const WHAT: &str = "counters of NVUE in JSON";
const STATS: &str = "egress-queue-stats";

/// Commands that load a change, try it without effect, and roll it back, each with its result.
pub(super) const PROCEDURE: &str = r#"
nv config history
    note the newest revision: that is where to go back to
nv config patch $PWD/forward.yaml
    a pending revision; it has no effect yet (give the whole path)
nv config diff
    only what the change says; nothing of other features
nv config detach
    instead of applying: the pending revision is put aside
nv config apply --confirm 10m
    it is in effect, and goes back by itself after ten minutes
nv config apply --confirm-yes
    within the ten minutes, after the looks below: it stays
nv config apply REVISION
    to go back later, with the revision noted first; or patch with the inverse change
nv config save
    it outlives a reboot
"#;

const PROFILES: &str = "
nv show qos mapping gradwire dscp
    every DSCP of the plan leads to the switch priority of its queue
nv show qos egress-queue-mapping default-global
    switch priorities of the plan lead to queues of the same number
nv show qos egress-scheduler gradwire
    every queue of the plan is strict
";
const PORT: &str = "
nv show interface {port} qos congestion-control
    profile {profile}: ecn and red enabled in data queues, not in others
nv show interface {port} qos pfc
    nothing is sent or obeyed
";
const ADAPTIVE: &str = "
nv show router adaptive-routing
    it is on
";
const TRIMS: &str = "
nv show system forwarding packet-trim
    it is enabled
";
const COUNTERS: &str = "
nv show interface {port} counters qos -o json
    marks and WRED discards in data queues under load, none in control queues
";

/// Commands after loading, in order.
pub(super) fn looks(plan: &Plan) -> Vec<Look> {
    let mut text = PROFILES.to_owned();
    for port in &plan.site.ports {
        let profile = render::thresholds_name(port.rate);
        text.push_str(
            &PORT
                .replace("{port}", &port.name)
                .replace("{profile}", &profile),
        );
    }
    if plan.balance == Balance::Adaptive {
        text.push_str(ADAPTIVE);
    }
    if plan.trims_to.is_some() {
        text.push_str(TRIMS);
    }
    for port in &plan.site.ports {
        text.push_str(&COUNTERS.replace("{port}", &port.name));
    }
    steps(&text)
}

/// The counters of one port, or of several by their names.
pub(super) fn read(plan: &Plan, text: &str) -> Result<Vec<QueueCount>, ReadError> {
    let value: Value = serde_json::from_str(text).map_err(|error| {
        let text = "give the output of `nv show interface PORT counters qos -o json`";
        ReadError::at(WHAT, error.line(), format!("{error}; {text}"))
    })?;
    if let Some(stats) = stats(&value) {
        let [port] = &plan.site.ports[..] else {
            let text =
                "the output names no port and the plan has several: give `{\"swp1\": OUTPUT, ...}`";
            return Err(ReadError::new(WHAT, text));
        };
        return Ok(counts(&port.name, stats));
    }
    let ports = value.as_object().into_iter().flatten();
    let counted = ports.filter_map(|(port, value)| Some(counts(port, stats(value)?)));
    let counted: Vec<QueueCount> = counted.flatten().collect();
    match counted.is_empty() {
        true => Err(ReadError::new(
            WHAT,
            "no `egress-queue-stats`; give the output of `nv show interface PORT counters qos -o \
             json`",
        )),
        false => Ok(counted),
    }
}

/// The queues of an output: of all counters, or of those of queues alone.
fn stats(value: &Value) -> Option<&Map<String, Value>> {
    let inner = value.get(STATS).unwrap_or(value);
    let inner = inner.get("traffic-class").unwrap_or(inner).as_object()?;
    let is_queue = |row: (&String, &Value)| row.0.parse::<u8>().is_ok() && row.1.is_object();
    (!inner.is_empty() && inner.iter().all(is_queue)).then_some(inner)
}

fn counts(port: &str, stats: &Map<String, Value>) -> Vec<QueueCount> {
    let rows = stats.iter().filter_map(|(number, row)| {
        let frames = |key: &str| row.get(key).and_then(number_of);
        let full = row.get("tx-uc-buffer-discards");
        Some(QueueCount {
            port: port.to_owned(),
            queue: number.parse().ok()?,
            sent: frames("tx-frames").unwrap_or(0),
            marked: frames("ecn-marked-frames"),
            early: frames("wred-discards"),
            full: full.map_or(0, without_room),
        })
    });
    rows.collect()
}

/// Packets without room; `12 KB` counts as one.
fn without_room(value: &Value) -> u64 {
    number_of(value).unwrap_or_else(|| {
        let text = value.as_str().unwrap_or("");
        u64::from(text.starts_with(|first: char| ('1'..='9').contains(&first)))
    })
}
