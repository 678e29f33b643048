//! Two parties in one process, over loopback.

use std::net::Ipv4Addr;

use gradwire_protocol::units::Share;

use super::*;

/// Memory of the test.
#[derive(Debug)]
struct SharedMemory(Arc<Mutex<Vec<u8>>>, Vec<u8>);

impl gradwire_collectives::buffer::LentMemory for SharedMemory {
    fn length(&self) -> usize {
        self.1.len()
    }

    fn bytes(&self) -> &[u8] {
        &self.1
    }

    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.1)
    }
}

/// Hands its bytes over when the machine lets go of it.
impl Drop for SharedMemory {
    fn drop(&mut self) {
        *self.0.lock().expect("no test panics with it") = std::mem::take(&mut self.1);
    }
}

type Handed = Arc<Mutex<Vec<u8>>>;

fn memory(bytes: Vec<u8>) -> (Box<SharedMemory>, Handed) {
    let handed = Handed::default();
    (Box::new(SharedMemory(Arc::clone(&handed), bytes)), handed)
}

fn party(drop: f64) -> Arc<Party> {
    let mut job = Job::default();
    job.faults.drop = Share::new(drop).expect("a share");
    job.faults.reorder = Share::new(drop).expect("a share");
    job.faults.duplicate = Share::new(drop).expect("a share");
    let bind = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let token = "secret".to_owned();
    Party::open(PartyOpening { job, bind, token }).expect("loopback has ports")
}

fn connect(from: &Arc<Party>, to: &Arc<Party>) -> (PartySender, PartyReceiver) {
    let mut listener = to.listen().expect("loopback has ports");
    let mut dialer = from.dial(&listener.ticket()).expect("loopback connects");
    let (mut sender, mut receiver) = (None, None);
    while sender.is_none() || receiver.is_none() {
        receiver = receiver.or(listener.accept().expect("accepted"));
        if sender.is_none() {
            sender = dialer.poll().expect("connected");
        }
    }
    (sender.expect("connected"), receiver.expect("accepted"))
}

fn until<T>(mut next: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = next() {
            return found;
        }
        std::thread::yield_now();
    }
}

fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at * 7 + at / 251 + seed) as u8)
        .collect()
}

#[test]
fn messages_keep_bytes_and_order_over_rough_paths() {
    for drop in [0.0, 0.05] {
        let (left, right) = (party(drop), party(drop));
        let (mut sender, mut receiver) = connect(&left, &right);
        let sizes = [0, 1, 127, 128, 129, 70_000, 1 << 20, 5];
        let mut posted = Vec::new();
        for &size in &sizes {
            let (room, handed) = memory(vec![0; size + 300]);
            let number = receiver.receive(room).expect("open").expect("room");
            posted.push((number, handed));
        }
        let mut sent = Vec::new();
        for (seed, &size) in sizes.iter().enumerate() {
            let (bytes, _) = memory(pattern(size, seed));
            sent.push(sender.send(bytes).expect("open").expect("room"));
        }
        for (seed, ((number, handed), &size)) in posted.into_iter().zip(&sizes).enumerate() {
            let length = until(|| {
                let _ = left.link.poll();
                receiver.test(number).expect("it arrives")
            });
            assert_eq!(length as usize, size, "drop {drop}");
            let bytes = handed.lock().expect("handed over");
            assert!(bytes[..size] == pattern(size, seed)[..], "{size} bytes");
        }
        for number in sent {
            until(|| sender.test(number).expect("it is sent"));
        }
    }
}

#[test]
fn requests_beyond_the_limit_wait() {
    let party = party(0.0);
    let (mut sender, mut receiver) = connect(&party, &party);
    let empty = || memory(Vec::new()).0;
    for _ in 0..REQUESTS_MAX {
        assert!(receiver.receive(empty()).expect("open").is_some());
    }
    assert_eq!(receiver.receive(empty()), Ok(None));
    let number = sender.send(empty()).expect("open").expect("room");
    until(|| sender.test(number).expect("it is sent"));
    until(|| receiver.test(RequestNumber(0)).expect("it arrives"));
    assert!(receiver.receive(empty()).expect("open").is_some());
}

#[test]
fn too_long_messages_fail_at_both_ends() {
    let party = party(0.0);
    let (mut sender, mut receiver) = connect(&party, &party);
    let posted = receiver.receive(memory(vec![0; 10]).0);
    let posted = posted.expect("open").expect("room");
    let sent = sender.send(memory(vec![1; 11]).0);
    let sent = sent.expect("open").expect("room");
    let failed = until(|| receiver.test(posted).err());
    assert_eq!(failed, RequestError::TooLong { room: 10, came: 11 });
    let failed = until(|| sender.test(sent).err());
    assert_eq!(failed, RequestError::Refused { bytes: 11 });
}

#[test]
fn closing_frees_memory_and_fails_the_peer() {
    let (left, right) = (party(0.0), party(0.0));
    let (mut sender, mut receiver) = connect(&left, &right);
    let (room, handed) = memory(vec![7; 100]);
    receiver.receive(room).expect("open").expect("room");
    drop(receiver);
    assert_eq!(handed.lock().expect("handed over").len(), 100);
    let (bytes, handed) = memory(vec![1; 1 << 20]);
    let number = sender.send(bytes).expect("open").expect("room");
    assert_eq!(until(|| sender.test(number).err()), RequestError::Ended);
    assert_eq!(handed.lock().expect("handed over").len(), 1 << 20);
    let refused = sender.send(memory(vec![1]).0);
    assert_eq!(refused, Err(RequestError::Ended));
    drop(sender);
    assert!(left.taken().is_empty() && right.taken().is_empty());
}

#[test]
fn messages_taken_before_a_close_are_sent() {
    let (left, right) = (party(0.3), party(0.3));
    for _ in 0..10 {
        let (mut sender, mut receiver) = connect(&left, &right);
        let posted = receiver.receive(memory(vec![0; 3000]).0);
        let posted = posted.expect("open").expect("room");
        let sent = sender.send(memory(vec![1; 3000]).0);
        let sent = sent.expect("open").expect("room");
        until(|| {
            let _ = left.link.poll();
            receiver.test(posted).expect("it arrives")
        });
        drop(receiver);
        until(|| sender.test(sent).expect("it has arrived"));
    }
}
