//! A plan put into a running CONFIG_DB: the configuration afterwards.
//!
//! Rows that are named GRADWIRE are ours and are replaced whole. Of the plan's ports, the rows of
//! queues that the plan has are replaced too, and of their bindings the fields that we write. Other
//! ports, profiles and tables stay. Rows of ours that no row leads to any more are removed, and
//! tables that become empty: SONiC refuses a patch that leaves one.

use serde_json::{Map, Value};

use super::read::config::{BAR, OURS};
use super::read::ranges;
use super::render::{self, DATA, POOL};
use crate::notation::json;
use crate::plan::Plan;

/// Tables of named rows, and the fields by which others name them.
const NAMED: [(&str, &str); 6] = [
    ("DSCP_TO_TC_MAP", "dscp_to_tc_map"),
    ("TC_TO_QUEUE_MAP", "tc_to_queue_map"),
    ("TC_TO_PRIORITY_GROUP_MAP", "tc_to_pg_map"),
    ("SCHEDULER", "scheduler"),
    ("WRED_PROFILE", "wred_profile"),
    ("BUFFER_PROFILE", "profile"),
];
/// Tables of rows by port and queue.
const BY_QUEUE: [&str; 2] = ["QUEUE", "BUFFER_QUEUE"];
/// The table of ports whose pauses are watched.
const WATCHDOG: &str = "PFC_WD";
/// Tables whose rows are merged, field by field.
const MERGED: [&str; 4] = [
    "PORT_QOS_MAP",
    "BUFFER_POOL",
    "SWITCH_HASH",
    "SWITCH_TRIMMING",
];

/// Every table that is read or written here.
pub(super) fn touched() -> impl Iterator<Item = &'static str> {
    let named = NAMED.into_iter().map(|(table, _)| table);
    named.chain(BY_QUEUE).chain(MERGED).chain([WATCHDOG])
}

/// The running configuration with the plan in it. Its touched tables must be tables of rows.
pub(super) fn with_plan(plan: &Plan, running: &Value) -> Value {
    let mut ours = render::render(plan);
    let mut after = running.clone();
    keep_pool(running, &mut ours);
    keep_hash(running, &mut ours);
    clear_queues(plan, &ours, &mut after);
    for (table, _) in NAMED {
        replace_rows(&ours, &mut after, table);
    }
    for table in BY_QUEUE {
        replace_rows(&ours, &mut after, table);
    }
    for port in &plan.site.ports {
        // It would rewrite the DSCPs that the next switch goes by.
        let bindings = json::object_at(&mut after, &["PORT_QOS_MAP", &port.name]);
        bindings.remove("tc_to_dscp_map");
        // A watchdog drops what queues hold that are paused for long: nothing is paused here.
        bindings.remove("pfcwd_sw_enable");
        if let Some(watched) = after.get_mut(WATCHDOG).and_then(Value::as_object_mut) {
            watched.remove(&port.name);
        }
    }
    for table in MERGED {
        if let Some(rows) = ours.get(table) {
            json_patch::merge(&mut after[table], rows);
        }
    }
    remove_leftovers(&ours, &mut after);
    remove_empty(running, &mut after);
    after
}

fn rows<'a>(root: &'a Value, table: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let rows = root.get(table).and_then(Value::as_object);
    rows.into_iter().flatten()
}

/// A switch has its pools from its maker, and their sizes fit its memory: ours is only for those
/// that have none.
fn keep_pool(running: &Value, ours: &mut Value) {
    let is_egress = |pool: &Value| {
        let kind = pool.get("type").and_then(Value::as_str);
        kind == Some("egress") || kind == Some("both")
    };
    let named = json::at(running, &["BUFFER_POOL", POOL]).map(|_| POOL.to_owned());
    let first = rows(running, "BUFFER_POOL").find(|(_, pool)| is_egress(pool));
    let kept = named.or_else(|| first.map(|(name, _)| name.clone()));
    let profile = ours.get_mut("BUFFER_PROFILE");
    let profile = profile.and_then(|table| table.get_mut(DATA));
    if let (Some(kept), Some(profile)) = (kept, profile) {
        profile["pool"] = Value::from(kept);
        json::object_at(ours, &[]).remove("BUFFER_POOL");
    }
}

/// The fields by which a switch already chooses paths stay; missing ones are added behind.
fn keep_hash(running: &Value, ours: &mut Value) {
    let path = ["SWITCH_HASH", "GLOBAL", "ecmp_hash"];
    let Some(Value::Array(theirs)) = json::at(running, &path) else {
        return;
    };
    let Some(Value::Array(wanted)) = ours.pointer_mut("/SWITCH_HASH/GLOBAL/ecmp_hash") else {
        return;
    };
    let absent: Vec<Value> = std::mem::take(wanted)
        .into_iter()
        .filter(|field| !theirs.contains(field))
        .collect();
    *wanted = theirs.iter().cloned().chain(absent).collect();
}

/// Takes the plan's queues out of the rows that have them: rows of several queues keep the others.
fn clear_queues(plan: &Plan, ours: &Value, after: &mut Value) {
    for table in BY_QUEUE {
        let taken: Vec<&String> = rows(ours, table).map(|(key, _)| key).collect();
        let Some(theirs) = after.get_mut(table).and_then(Value::as_object_mut) else {
            continue;
        };
        for port in &plan.site.ports {
            let before = format!("{}{BAR}", port.name);
            let of_port = |key: &String| key.strip_prefix(&before).and_then(ranges::read);
            for range in taken.iter().filter_map(|key| of_port(key)) {
                let keys: Vec<String> = theirs.keys().cloned().collect();
                for key in keys {
                    let Some(theirs_of_port) = of_port(&key) else {
                        continue;
                    };
                    if !ranges::overlap(&theirs_of_port, &range) || theirs_of_port == range {
                        continue;
                    }
                    let row = theirs.remove(&key).unwrap_or_default();
                    for left in ranges::without(&theirs_of_port, &range) {
                        theirs.insert(format!("{before}{}", ranges::write(&left)), row.clone());
                    }
                }
            }
            remove_stale(theirs, &before, &taken);
        }
    }
}

/// Removes rows of queues that an earlier plan had, and this one has not.
fn remove_stale(theirs: &mut Map<String, Value>, before: &str, taken: &[&String]) {
    let leads_to_ours = |row: &Value| {
        let fields = row.as_object().into_iter().flatten();
        let mut texts = fields.filter_map(|(_, value)| value.as_str());
        texts.any(is_ours)
    };
    theirs
        .retain(|key, row| !key.starts_with(before) || taken.contains(&key) || !leads_to_ours(row));
}

fn is_ours(name: &str) -> bool {
    name == OURS || name.starts_with("GRADWIRE_")
}

fn replace_rows(ours: &Value, after: &mut Value, table: &str) {
    for (key, row) in rows(ours, table) {
        after[table][key] = row.clone();
    }
}

/// Removes rows of ours that this plan has not, unless something still leads to them: the plan of
/// other ports may.
fn remove_leftovers(ours: &Value, after: &mut Value) {
    for (table, field) in NAMED {
        let old = |name: &String| {
            is_ours(name)
                && json::at(ours, &[table, name]).is_none()
                && !is_used(after, field, name)
        };
        let names: Vec<String> = rows(after, table)
            .map(|(name, _)| name.clone())
            .filter(old)
            .collect();
        for name in names {
            json::object_at(after, &[table]).remove(&name);
        }
    }
}

fn is_used(after: &Value, field: &str, name: &str) -> bool {
    let users = ["PORT_QOS_MAP", "QUEUE", "BUFFER_QUEUE", "BUFFER_PG"];
    let mut users = users.into_iter().flat_map(|table| rows(after, table));
    users.any(|(_, row)| row.get(field).and_then(Value::as_str) == Some(name))
}

fn remove_empty(running: &Value, after: &mut Value) {
    for table in touched() {
        let is_empty = |root: &Value| json::at(root, &[table]) == Some(&Value::Object(Map::new()));
        if is_empty(after) && !is_empty(running) {
            json::object_at(after, &[]).remove(table);
        }
    }
}
