//! htsim connection matrices.

use gradwire_protocol::units::{ByteCount, Instant};
use gradwire_workloads::connection_matrix::{ConnectionMatrix, FailedUplink};
use gradwire_workloads::workload::{Start, Trigger, TriggerId};
use proptest::prelude::*;

const CHAIN: &str = "Nodes 4\nConnections 4\nTriggers 3\n\
    0->1 id 1 start 1000000 size 2000000 send_done_trigger 5\n\
    1->2 id 2 trigger 5 size 4086 prio 3 recv_done_trigger 7\n\
    2->3 id 3 trigger 7 size 1\n\
    3->0 id 4 trigger 9 size 6000000000\n\
    trigger id 7 barrier count 1\n\
    trigger id 5 oneshot\n\
    trigger id 9 multishot\n";

fn matrix(text: &str) -> ConnectionMatrix {
    ConnectionMatrix::parse(text).expect("the matrix is right")
}

fn refusal(text: &str) -> String {
    ConnectionMatrix::parse(text)
        .expect_err("the matrix is wrong")
        .to_string()
}

#[test]
fn connections_start_at_picoseconds_or_by_triggers() {
    let matrix = matrix(CHAIN);
    assert_eq!(matrix.hosts, 4);
    let workload = matrix.workload;
    let barrier = Trigger::Barrier(1);
    assert_eq!(workload.triggers, [Trigger::Once, barrier, Trigger::Each]);
    let flows = &workload.flows;
    assert_eq!(flows[0].start, Start::At(Instant::from_picos(1_000_000)));
    assert_eq!(flows[0].when_sent, Some(TriggerId(0)));
    assert_eq!(flows[1].start, Start::On(TriggerId(0)));
    assert_eq!(flows[1].when_received, Some(TriggerId(1)));
    assert_eq!(flows[3].bytes, ByteCount::new(6_000_000_000));
}

#[test]
fn a_connection_whose_trigger_nobody_tells_is_found_by_the_check() {
    let message = matrix(CHAIN)
        .workload
        .check(4)
        .expect_err("nobody tells 9")
        .to_string();
    assert!(
        message.starts_with("flow 3 waits for trigger 2 (one flow each time)"),
        "{message}"
    );
}

#[test]
fn failed_links_are_given_back() {
    let text = "Nodes 2\nConnections 1\nFailures 1\n0->1 start 0 size 1\n\
                failure switch_type AGG switch_id 3 link_id 1\n";
    let failure = FailedUplink {
        tier: 1,
        switch: 3,
        link: 1,
    };
    assert_eq!(matrix(text).failures, [failure]);
}

#[test]
fn messages_of_a_connection_are_flows() {
    let text = "Nodes 2\nConnections 2\n0->1 id 1 msg 1 start 0 size 10\n\
                0->1 id 1 msg 2 start 5 size 20\n";
    let flows = matrix(text).workload.flows;
    let bytes: Vec<u64> = flows.iter().map(|flow| flow.bytes.get()).collect();
    assert_eq!(bytes, [10, 20]);
    let zero = "Nodes 2\nConnections 1\n0->1 msg 0 start 0 size 1\n";
    assert!(refusal(zero).starts_with("line 3: msg `0`: allowed is a whole number from 1"));
}

#[test]
fn a_wrong_line_is_named() {
    let with = |line: &str| refusal(&format!("Nodes 4\nConnections 1\nTriggers 0\n{line}\n"));
    assert_eq!(
        with("0->1 strt 0 size 1"),
        "line 4: `strt` (did you mean `start`?): allowed here are start, trigger, size, id, \
         msg, send_done_trigger, recv_done_trigger and prio"
    );
    assert!(with("0->4 start 0 size 1").starts_with("line 4: host 4; `Nodes 4` allows 0 to 3"));
    assert!(with("0->0 start 0 size 1").starts_with("line 4: a connection goes to another host"));
    assert!(with("0->x start 0 size 1").contains("connection `0->x`: allowed is `src->dst`"));
    assert!(with("0->1 start 0").starts_with("line 4: a connection needs `size`"));
    assert!(with("0->1 start 0 size 0").starts_with("line 4: size `0`: allowed is"));
    assert!(with("0->1 size 5").starts_with("line 4: a connection needs `start` or"));
    assert!(with("0->1 start 0 trigger 1 size 5").contains("not both"));
    assert!(with("0->1 start -1 size 5").contains("start `-1`: allowed is a time"));
    assert!(with("0->1 start").contains("start ``: allowed is"));
    assert!(with("0->1 trigger 3 size 5").starts_with("line 4: trigger 3 has no `trigger id 3"));
    assert!(with("trigger id 1 barrier").starts_with("line 4: a barrier needs `count`"));
    assert!(with("trigger id 1 sometimes").contains("`sometimes`: allowed here are id, oneshot"));
    assert!(with("failure switch_type LEAF").contains("switch_type `LEAF`: allowed is TOR"));
    assert!(with("Conections 1").contains("did you mean `Connections`"));
}

#[test]
fn a_header_that_disagrees_with_the_lines_is_refused() {
    assert_eq!(
        refusal("Nodes 4\nConnections 2\n0->1 start 0 size 1\n"),
        "the header says `Connections 2`, the file has 1: correct one of them"
    );
    assert!(refusal("Connections 1\n0->1 start 0 size 1\n").contains("begins with `Nodes`"));
    let twice = "Nodes 4\nConnections 0\nTriggers 1\ntrigger id 1 oneshot\ntrigger id 1 oneshot\n";
    assert!(refusal(twice).starts_with("line 5: this trigger id has a line already"));
}

proptest! {
    #[test]
    fn arbitrary_matrices_never_panic(
        lines in proptest::collection::vec(
            "(Nodes|Connections|Triggers|[0-3]->[0-3]|trigger|failure|\\PC{0,4})( \
             (start|size|trigger|id|barrier|count|oneshot|switch_type|AGG|[0-9-]{1,3})){0,6}",
            0..8,
        ),
    ) {
        if let Ok(matrix) = ConnectionMatrix::parse(&lines.join("\n")) {
            let _ = matrix.workload.check(matrix.hosts);
        }
    }
}
