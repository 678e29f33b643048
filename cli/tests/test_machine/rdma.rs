//! Verbs over two Soft-RoCE devices, whose packets pass a switch that does what was rendered.

use crate::guest::{self, RDMA, object, text};

#[test]
fn the_devices_talk_to_each_other_through_the_switch() {
    let Some(out) = guest::written(RDMA) else {
        return;
    };
    let devices = text(out, "devices");
    for device in ["rxe0/1 state ACTIVE", "rxe1/1 state ACTIVE"] {
        assert!(devices.contains(device), "{devices}");
    }
    let passed = |when: &str| -> u64 {
        let all = object(out, &format!("pingpong-{when}.json"));
        let all = all.as_array().expect("a list of queueing disciplines");
        let port = all.iter().find(|one| one["kind"] == "htb");
        port.expect("the port's shaper")["packets"]
            .as_u64()
            .expect("a count")
    };
    let crossed = passed("after") - passed("before");
    assert!(crossed >= 20, "{crossed} of 20 packets passed the switch");
}
