//! Commands for people: how a patch is loaded and rolled back, and what to look at then.
//!
//! Sources: sonic-net/SONiC, `doc/config-generic-update-rollback/` (checkpoint, dry run, rollback),
//! `doc/qos/ECN_and_WRED_statistics_HLD.md` (counters of marks and early drops) and
//! `doc/packet_trimming/packet-trimming-design.md`; sonic-net/sonic-utilities,
//! `generic_config_updater/gcu_field_operation_validators.conf.json` (what is refused as a patch).

use super::config::OURS;
use crate::dialect::contract::{Look, look};
use crate::plan::Plan;

/// How the patch is loaded, tried without effect, and rolled back.
pub(super) fn loading(plan: &Plan) -> Vec<Look> {
    let mut steps = vec![
        look(
            "show runningconfiguration all > running.json",
            "the export that `gradwire switch diff` makes the patch for",
        ),
        look(
            "sudo config checkpoint gradwire",
            "`Checkpoint created successfully.`",
        ),
        look(
            "sudo config apply-patch --dry-run gradwire.json-patch",
            "`Patch applied successfully.`; nothing was changed. `Modification of WRED_PROFILE \
             table is illegal`: this release takes no new profile as a patch (those before \
             sonic-utilities' pull request 4219 of 2026 do not); load the whole, see below",
        ),
        look(
            "sudo config apply-patch gradwire.json-patch",
            "`Patch applied successfully.`",
        ),
        look(
            "sudo config rollback gradwire",
            "only to go back: the configuration of the checkpoint; `gradwire switch undo` makes \
             the inverse patch, which keeps what others changed since",
        ),
        look(
            "jsonpatch running.json gradwire.json-patch > whole.json && \
             sudo config reload whole.json -y",
            "only where the patch is refused: the services of the switch start anew, and links \
             are down meanwhile; `sudo config reload running.json -y` goes back",
        ),
        look(
            "sudo config save -y",
            "only when it works: until then a reboot goes back, too",
        ),
    ];
    if plan.trims_to.is_some() {
        let remark = "SONiC cannot take fields of SWITCH_TRIMMING away while it runs: after going \
                      back, queues do not trim any more, and the rest goes with the next reload";
        steps.push(look("show switch-trimming global", remark));
    }
    steps
}

/// What to look at after loading.
pub(super) fn looks(plan: &Plan) -> Vec<Look> {
    let port = plan.site.ports.first();
    let port = port.map_or("Ethernet0", |port| port.name.as_str());
    let mut looks = vec![
        look(
            format!("redis-cli -n 4 HGETALL 'PORT_QOS_MAP|{port}'"),
            format!("`dscp_to_tc_map` {OURS}, `pfc_enable` empty"),
        ),
        look(
            format!("redis-cli -n 4 HGETALL 'DSCP_TO_TC_MAP|{OURS}'"),
            dscps(plan),
        ),
        look("show ecn", thresholds(plan)),
        look("show pfc priority", format!("no class for {port}")),
    ];
    if plan.alpha.is_some() || plan.trims_to.is_some() {
        let expect = "profile GRADWIRE_DATA, and the queues of data with it";
        looks.push(look("show buffer configuration", expect));
    }
    if plan.trims_to.is_some() {
        let expect = "size, DSCP and queue as the plan has them";
        looks.push(look("show switch-trimming global", expect));
    }
    looks.extend([
        look(
            "show switch-hash global",
            "L4_SRC_PORT among the fields of ECMP",
        ),
        look(
            "sudo counterpoll queue enable && sudo counterpoll wredqueue enable",
            "nothing; marks and early drops are not counted before",
        ),
        look(
            "sudo sonic-clear queuecounters && sudo sonic-clear queue wredcounters",
            "`Clear and update saved counters`",
        ),
        look(
            "show queue counters --json > counters.json",
            "under load: packets in the queues of classes, no drops in the control queue",
        ),
        look(
            "show queue wredcounters --json >> counters.json",
            "under load: marks and early drops in data queues only; `gradwire switch verify \
             --counters counters.json` judges both",
        ),
    ]);
    looks
}

fn dscps(plan: &Plan) -> String {
    let rows = plan.queues.iter().map(|queue| {
        let dscps: Vec<String> = queue.dscps.iter().map(ToString::to_string).collect();
        format!(
            "{} -> {} ({})",
            dscps.join(", "),
            queue.number,
            queue.name()
        )
    });
    let rows: Vec<String> = rows.collect();
    let last = plan.queues.last().map_or(0, |queue| queue.number);
    format!("{}; all others -> {last}", rows.join("; "))
}

fn thresholds(plan: &Plan) -> String {
    let rows = plan.profiles.iter().map(|profile| {
        let threshold = &profile.threshold;
        let (low, high) = (threshold.low_bytes(), threshold.high_bytes());
        format!("{OURS}_{}: `ecn_all`, {low} to {high} bytes", profile.name)
    });
    let mut rows: Vec<String> = rows.collect();
    let control = plan.control().number;
    rows.push(format!("nothing for queue {control} (control)"));
    rows.join("; ")
}
