//! GOAL schedules.

use gradwire_protocol::units::{ByteCount, Span};
use gradwire_workloads::workload::{Work, Workload};
use proptest::prelude::*;

const PING: &str = "num_ranks 3\n/* two of\n three */ rank 0 {\n\
    l1: send 80b to 1 tag 7\nl2 : recv 8 b from 1 tag 9 cpu 1 nic 0\nl2 irequires l1 // now\n}\n\
    rank 1 {\nl3: send 8b to 0 tag 9\nl2: calc 1500 cpu 2\nl1: recv 80b from 0 tag 7\n\
    l3 requires l2\nl2 requires l1\n}\nrank 2{}";

fn schedule(text: &str) -> Workload {
    Workload::from_goal(text).expect("the schedule is right")
}

fn refusal(operations: &str) -> String {
    Workload::from_goal(&format!("num_ranks 2\nrank 0 {{\n{operations}\n}}\n"))
        .expect_err("the schedule is wrong")
        .to_string()
}

#[test]
fn operations_become_tasks_in_an_order_that_their_waits_allow() {
    let workload = schedule(PING);
    workload.check(3).expect("every send has its receive");
    assert_eq!(workload.programs.len(), 3);
    let [first, second] = &workload.programs[0].tasks[..] else {
        panic!("rank 0 has two operations");
    };
    let bytes = ByteCount::new(80);
    assert_eq!(
        first.work,
        Work::Send {
            to: 1,
            bytes,
            tag: 7
        }
    );
    assert_eq!(
        (&second.after[..], &second.after_start[..]),
        (&[][..], &[0][..])
    );
    let names: Vec<&str> = workload.programs[1]
        .tasks
        .iter()
        .map(|it| &it.name[..])
        .collect();
    assert_eq!(names, ["l1", "l2", "l3"]);
    let span = Span::from_nanos(1500);
    assert_eq!(
        workload.programs[1].tasks[1].work,
        Work::Compute { span, unit: 2 }
    );
    assert_eq!(workload.programs[1].tasks[2].after, [1]);
}

#[test]
fn a_message_of_no_bytes_is_carried_as_one_byte() {
    let workload = schedule("num_ranks 2\nrank 0 {\nsend 0b to 1\n}\nrank 1 {\nrecv 0b from 0\n}");
    workload.check(2).expect("every send has its receive");
}

#[test]
fn a_wrong_operation_names_its_line() {
    assert_eq!(
        refusal("l1: sned 80b to 1"),
        "line 3: `sned` (did you mean `send`?): allowed here is `send`, `recv` or `calc`"
    );
    assert!(refusal("l1: send 80 to 1").starts_with("line 3: `80`: allowed here is bytes"));
    assert!(refusal("l1: send 80b to 2").starts_with("line 3: rank 2; `num_ranks 2` allows"));
    assert!(refusal("l1: send 80b from 1").contains("allowed here is `to` behind"));
    assert!(refusal("l1: send 80b to 0").contains("a rank sends to itself"));
    assert!(refusal("l1: recv 80b from -1").contains("any sender"));
    assert!(refusal("l1: recv 80b from 1 tag -1").contains("any tag"));
    assert!(refusal("l1: calc x").starts_with("line 3: `x`: allowed here is a whole number"));
    assert!(refusal("l1: calc 1\nl1: calc 2").starts_with("line 4: label l1 exists already"));
    let label = refusal("la: calc 1\nlb requires la");
    assert_eq!(
        label,
        "line 4: no operation of rank 0 has the label `lb` (did you mean `la`?)"
    );
    let circle = refusal("a: calc 1\nb: calc 1\na requires b\nb irequires a");
    assert!(circle.contains("waits for itself"), "{circle}");
}

#[test]
fn a_wrong_frame_names_its_line() {
    let refusal = |text| {
        Workload::from_goal(text)
            .expect_err("it is wrong")
            .to_string()
    };
    assert!(refusal("").contains("allowed here is `num_ranks`"));
    assert!(refusal("num_ranks 2\nrank 0 {\n").contains("or `}`"));
    assert!(refusal("num_ranks 1\nrank 0 {}\nrank 0 {}").starts_with("line 3: rank 0 is there"));
}

proptest! {
    #[test]
    fn arbitrary_schedules_never_panic(
        words in proptest::collection::vec(
            "num_ranks|rank|[{}:]|send|recv|calc|to|from|requires|irequires|tag|l1|[0-9]{1,3}b?|\
             \\PC{0,3}|/[*]|[*]/|//",
            0..30,
        ),
        blank in "[ \n]",
    ) {
        let text = format!("num_ranks 2 rank 0 {{ {}", words.join(&blank));
        if let Ok(workload) = Workload::from_goal(&text) {
            let _ = workload.check(2);
        }
    }
}
