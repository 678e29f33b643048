//! Chakra execution traces, written here byte by byte.

use gradwire_protocol::units::{ByteCount, Span};
use gradwire_workloads::workload::{CollectiveKind, Work, Workload};
use proptest::prelude::*;

const COMPUTE: u64 = 4;
const SEND: u64 = 5;
const RECEIVE: u64 = 6;
const COLLECTIVE: u64 = 7;
const METADATA: u64 = 1;

fn varint(mut value: u64, to: &mut Vec<u8>) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

fn number(field: u64, value: u64, to: &mut Vec<u8>) {
    varint(field << 3, to);
    varint(value, to);
}

fn bytes(field: u64, value: &[u8], to: &mut Vec<u8>) {
    varint(field << 3 | 2, to);
    varint(value.len() as u64, to);
    to.extend(value);
}

/// An operation that is written field by field.
struct Operation(Vec<u8>);

impl Operation {
    fn new(id: u64, kind: u64) -> Self {
        let mut body = Vec::new();
        number(1, id, &mut body);
        bytes(2, format!("operation {id}").as_bytes(), &mut body);
        number(3, kind, &mut body);
        Self(body)
    }

    fn takes(mut self, micros: u64) -> Self {
        number(7, micros, &mut self.0);
        self
    }

    fn called_by(mut self, id: u64) -> Self {
        number(4, id, &mut self.0);
        self
    }

    fn needs(mut self, ids: &[u8]) -> Self {
        bytes(5, ids, &mut self.0);
        self
    }

    /// A whole number (field 9) under this name.
    fn with(self, name: &str, value: u64) -> Self {
        let mut value_bytes = Vec::new();
        number(9, value, &mut value_bytes);
        self.attribute(name, &value_bytes)
    }

    fn text(self, name: &str, value: &str) -> Self {
        let mut value_bytes = Vec::new();
        bytes(29, value.as_bytes(), &mut value_bytes);
        self.attribute(name, &value_bytes)
    }

    fn on_gpu(self) -> Self {
        let mut value = Vec::new();
        number(27, 0, &mut value);
        self.attribute("is_cpu_op", &value)
    }

    fn attribute(mut self, name: &str, value: &[u8]) -> Self {
        let mut attribute = Vec::new();
        bytes(1, name.as_bytes(), &mut attribute);
        attribute.extend(value);
        bytes(10, &attribute, &mut self.0);
        self
    }

    fn lists(mut self, groups: &str) -> Self {
        bytes(2, b"## process_group:init ##", &mut self.0);
        let mut values = Vec::new();
        bytes(1, format!("['{groups}']").as_bytes(), &mut values);
        bytes(8, &values, &mut self.0);
        self
    }
}

fn trace(operations: Vec<Operation>) -> Vec<u8> {
    let mut trace = vec![0];
    for Operation(body) in operations {
        varint(body.len() as u64, &mut trace);
        trace.extend(body);
    }
    trace
}

fn refusal(operations: Vec<Operation>) -> String {
    Workload::from_chakra(&[trace(operations), trace(Vec::new())])
        .expect_err("the trace is wrong")
        .to_string()
}

fn all_reduce(id: u64) -> Operation {
    let operation = Operation::new(id, COLLECTIVE).on_gpu();
    operation.with("comm_type", 0).with("comm_size", 4096)
}

#[test]
fn operations_become_tasks_behind_their_data_dependencies() {
    let rank = || {
        trace(vec![
            all_reduce(9).needs(&[7]),
            Operation::new(3, COMPUTE).takes(20),
            Operation::new(7, COMPUTE).takes(5).on_gpu().called_by(3),
        ])
    };
    let workload = Workload::from_chakra(&[rank(), rank()]).expect("the traces are right");
    workload.check(2).expect("the traces come to their end");
    let tasks = &workload.programs[1].tasks;
    let span = Span::from_micros;
    assert_eq!(
        tasks[0].work,
        Work::Compute {
            span: span(20),
            unit: 0
        }
    );
    assert_eq!(
        tasks[1].work,
        Work::Compute {
            span: span(5),
            unit: 1
        }
    );
    assert!(tasks[1].after.is_empty(), "callers are not waited for");
    let shared = Work::Collective {
        kind: CollectiveKind::AllReduce,
        group: 0,
        bytes: ByteCount::kib(4),
        layers: Vec::new(),
    };
    assert_eq!((&tasks[2].work, &tasks[2].after[..]), (&shared, &[1][..]));
    assert_eq!(workload.groups, [[0, 1]]);
}

#[test]
fn collectives_of_a_group_start_in_the_order_of_their_ids() {
    let rank = || trace(vec![all_reduce(2), all_reduce(1)]);
    let workload = Workload::from_chakra(&[rank(), rank()]).expect("the traces are right");
    let tasks = &workload.programs[0].tasks;
    assert_eq!(tasks[0].name, "operation 1");
    assert_eq!(tasks[1].after_start, [0]);
}

#[test]
fn an_all_gather_puts_out_the_parts_of_all_ranks() {
    let gather = Operation::new(1, COLLECTIVE).with("comm_type", 2);
    let rank = trace(vec![gather.with("comm_size", 1000)]);
    let workload = Workload::from_chakra(&[rank.clone(), rank.clone(), rank]);
    let workload = workload.expect("the traces are right");
    let Work::Collective { kind, bytes, .. } = workload.programs[0].tasks[0].work else {
        panic!("the operation is a collective");
    };
    assert_eq!((kind, bytes.get()), (CollectiveKind::AllGather, 3000));
}

#[test]
fn messages_meet_by_rank_and_tag() {
    let send = Operation::new(1, SEND)
        .with("comm_dst", 1)
        .with("comm_size", 80);
    let receive = Operation::new(1, RECEIVE)
        .with("comm_src", 0)
        .with("comm_size", 80);
    let traces = [
        trace(vec![send.with("comm_tag", 5)]),
        trace(vec![receive.with("comm_tag", 5)]),
    ];
    let workload = Workload::from_chakra(&traces).expect("the traces are right");
    workload.check(2).expect("the message has its receive");
    let bytes = ByteCount::new(80);
    let send = &workload.programs[0].tasks[0].work;
    assert_eq!(
        *send,
        Work::Send {
            to: 1,
            bytes,
            tag: 5
        }
    );
}

#[test]
fn a_listed_process_group_has_its_ranks() {
    let list = r#"[{"pg_name": "7", "ranks": [0, 2]}, {"pg_name": "8", "ranks": []}]"#;
    let rank = |id, name| {
        let named = all_reduce(id).text("pg_name", name);
        trace(vec![Operation::new(1, METADATA).lists(list), named])
    };
    let traces = [rank(2, "7"), trace(Vec::new()), rank(3, "7")];
    let workload = Workload::from_chakra(&traces).expect("the traces are right");
    assert_eq!(workload.groups, [[0, 2]]);
    let all = [rank(2, "8"), rank(2, "8"), rank(2, "8")];
    let workload = Workload::from_chakra(&all).expect("the traces are right");
    assert_eq!(workload.groups, [[0, 1, 2]]);
    let few = Workload::from_chakra(&[rank(2, "7")]).expect_err("rank 2 has no trace");
    assert!(
        few.to_string()
            .contains("`7` has rank 2; there are traces of ranks 0 to 0")
    );
}

#[test]
fn an_unlisted_process_group_has_the_ranks_that_name_it() {
    let named = || trace(vec![all_reduce(1).text("pg_name", "3")]);
    let traces = [named(), trace(Vec::new()), named()];
    let workload = Workload::from_chakra(&traces).expect("the traces are right");
    assert_eq!(workload.groups, [[0, 2]]);
    let alone = Workload::from_chakra(&[named()]).expect("the trace is right");
    let span = Span::ZERO;
    assert_eq!(
        alone.programs[0].tasks[0].work,
        Work::Compute { span, unit: 1 }
    );
}

#[test]
fn wrong_operations_are_named() {
    let twice = refusal(vec![Operation::new(4, COMPUTE), Operation::new(4, COMPUTE)]);
    assert_eq!(
        twice,
        "rank 0, operation 4 (`operation 4`): another operation has this id"
    );
    assert!(refusal(vec![Operation::new(4, 99)]).contains("its type is not valid"));
    assert!(refusal(vec![Operation::new(4, COMPUTE).needs(&[5])]).contains("operation 5, which"));
    let circle = vec![
        Operation::new(4, COMPUTE).needs(&[5]),
        Operation::new(5, COMPUTE).needs(&[4]),
    ];
    assert!(refusal(circle).contains("waits for itself through its dependencies"));
    assert!(refusal(vec![Operation::new(4, COLLECTIVE).on_gpu()]).contains("`comm_type`"));
    let gather = Operation::new(4, COLLECTIVE).with("comm_type", 3);
    assert!(refusal(vec![gather]).contains("comm_type 3: allowed are 0 (all-reduce)"));
    let empty = Operation::new(4, COLLECTIVE).with("comm_type", 0);
    assert!(refusal(vec![empty]).contains("`comm_size` of 1 byte or more"));
    let far = Operation::new(4, SEND).with("comm_dst", 2);
    assert!(refusal(vec![far]).contains("`comm_dst` must be another rank of 0 to 1"));
    let none = Workload::from_chakra(&[]).expect_err("there is no rank");
    assert!(
        none.to_string()
            .starts_with("0 traces: give one for every rank")
    );
    let cut = Workload::from_chakra(&[vec![0, 9, 1]]).expect_err("the message is cut off");
    assert!(cut.to_string().starts_with("rank 0, byte 1: "), "{cut}");
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(
        traces in proptest::collection::vec(proptest::collection::vec(0..64_u8, 0..40), 0..3),
    ) {
        if let Ok(workload) = Workload::from_chakra(&traces) {
            let _ = workload.check(3);
        }
    }
}
