//! The control plane over real loopback sockets: ranks of one process that meet, agree, fail and
//! part as processes on hosts do.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use gradwire_protocol::units::Rank;
use gradwire_transport::control::{
    BarrierError, BindError, ControlEvent, ControlPlane, JoinError, JoinRefusal, JoinRole,
    LeaveError, Listener, Membership, OnEvent, join,
};
use gradwire_transport::lanes::AegisLanes;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const PATIENCE: Duration = Duration::from_secs(10);
const LOOPBACK: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// A rank that has joined, and the events it receives.
struct JoinedMember {
    control: ControlPlane,
    events: Receiver<ControlEvent>,
}

type Joining = JoinHandle<Result<JoinedMember, JoinError>>;

/// Rank 1 has a processor that computes fewer lanes.
fn lanes(rank: u16) -> AegisLanes {
    match rank {
        1 => AegisLanes::Two,
        _ => AegisLanes::Four,
    }
}

fn membership(rank: u16, world_size: u32) -> Membership {
    Membership {
        rank: Rank(rank),
        world_size,
        token: "a long random secret".into(),
        certificates: None,
        job: BTreeMap::from([
            ("name".into(), "job".into()),
            ("tolerance".into(), "0%".into()),
        ]),
        data_addresses: vec![SocketAddr::from(([127, 0, 0, 1], 4000 + rank)).into()],
        host: "here".to_owned(),
        mtu: 1500 + u32::from(rank),
        receive_buffer: 1 << 20,
        lanes: lanes(rank),
        memory: None,
        peer_timeout: Duration::from_secs(2),
    }
}

fn listener() -> (Listener, SocketAddr) {
    let listener = Listener::bind(LOOPBACK).expect("loopback has free ports");
    let address = listener.local_addr();
    (listener, address)
}

fn start(role: JoinRole, membership: Membership, timeout: Duration) -> Joining {
    spawn(move || {
        let (sender, events) = channel();
        // Tests that ignore events drop the receiver.
        let on_event: OnEvent = Box::new(move |event| drop(sender.send(event)));
        let control = join(role, membership, timeout, on_event)?;
        Ok(JoinedMember { control, events })
    })
}

fn joined(joining: Joining) -> JoinedMember {
    joining.join().expect("no panic").expect("joins")
}

fn refused(joining: Joining) -> JoinError {
    match joining.join().expect("no panic") {
        Ok(_) => panic!("joined although it should not"),
        Err(error) => error,
    }
}

/// All ranks of a job that starts.
fn job(world_size: u16) -> Vec<JoinedMember> {
    let (listener, address) = listener();
    let members = (1..world_size).map(|rank| (JoinRole::Member(address), rank));
    let joining: Vec<Joining> = std::iter::once((JoinRole::Leader(listener), 0))
        .chain(members)
        .map(|(role, rank)| start(role, membership(rank, world_size.into()), PATIENCE))
        .collect();
    joining.into_iter().map(joined).collect()
}

/// Makes a blocking call on all ranks at once.
fn on_all<T: Send>(ranks: &[JoinedMember], call: impl Fn(&ControlPlane) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let calls: Vec<_> = ranks
            .iter()
            .map(|rank| &rank.control)
            .map(|control| scope.spawn(|| call(control)))
            .collect();
        calls
            .into_iter()
            .map(|call| call.join().expect("no panic"))
            .collect()
    })
}

fn leave(rank: JoinedMember) -> JoinHandle<(Result<(), LeaveError>, Vec<ControlEvent>)> {
    spawn(move || {
        let left = rank.control.leave(PATIENCE);
        (left, rank.events.try_iter().collect())
    })
}

fn next(rank: &JoinedMember) -> ControlEvent {
    rank.events
        .recv_timeout(Duration::from_secs(5))
        .expect("an event within 5 s")
}

#[test]
fn a_rank_0_on_loopback_is_named_to_other_hosts() {
    let mut membership = membership(1, 2);
    membership.data_addresses = vec![SocketAddr::from(([10, 0, 0, 2], 4000)).into()];
    let role = JoinRole::Member(([127, 0, 0, 1], 1).into());
    #[expect(clippy::disallowed_methods, reason = "the test measures time")]
    let start = std::time::Instant::now();
    let error = join(role, membership, PATIENCE, Box::new(drop)).expect_err("it is another host");
    assert!(start.elapsed() < Duration::from_millis(500));
    assert!(error.to_string().contains("MASTER_ADDR"), "{error}");
}

#[test]
fn ranks_meet_and_share_roster_and_job_id() {
    let ranks = job(3);
    let first = &ranks[0].control;
    let hosts: Vec<&str> = first.roster().iter().map(|peer| &peer.host[..]).collect();
    assert_eq!(hosts, ["here"; 3]);
    for (rank, peer) in first.roster().iter().enumerate() {
        let number = u16::try_from(rank).expect("three ranks");
        assert_eq!((peer.rank, peer.lanes), (Rank(number), lanes(number)));
        assert_eq!(peer.data_addresses, membership(number, 3).data_addresses);
        let is_measured = peer.round_trip_us > 0;
        assert_eq!(is_measured, number > 0, "rank {rank}: {peer:?}");
    }
    for JoinedMember { control, .. } in &ranks {
        assert_eq!(control.roster(), first.roster());
        assert_eq!(control.job_id(), first.job_id());
        assert_eq!(control.epoch(), first.epoch());
    }
}

#[test]
fn a_job_of_one_rank_starts_alone() {
    let alone = job(1).pop().expect("one");
    assert_eq!(alone.control.roster().len(), 1);
    assert_eq!(alone.control.barrier(PATIENCE), Ok(()));
    alone.control.abort("nobody hears this");
    assert_eq!(alone.control.leave(PATIENCE), Ok(()));
}

#[test]
fn a_member_waits_for_rank_0() {
    let (listener, address) = listener();
    drop(listener);
    let member = start(JoinRole::Member(address), membership(1, 2), PATIENCE);
    sleep(Duration::from_millis(700));
    let listener = Listener::bind(address).expect("was free a moment ago");
    let leader = start(JoinRole::Leader(listener), membership(0, 2), PATIENCE);
    joined(member);
    joined(leader);
}

#[test]
fn a_member_may_connect_before_rank_0_joins() {
    let (listener, address) = listener();
    let member = start(JoinRole::Member(address), membership(1, 2), PATIENCE);
    sleep(Duration::from_millis(1200));
    let leader = start(JoinRole::Leader(listener), membership(0, 2), PATIENCE);
    let ranks = [joined(leader), joined(member)];
    let passed = on_all(&ranks, |control| control.barrier(PATIENCE));
    assert_eq!(passed, [Ok(()), Ok(())]);
}

#[test]
fn wrong_tokens_do_not_block_the_right_one() {
    let (listener, address) = listener();
    let leader = start(JoinRole::Leader(listener), membership(0, 2), PATIENCE);
    let missing = JoinRefusal::TokenMissing { rank: Rank(1) };
    let refusals = [("guess", JoinRefusal::WrongToken), ("", missing)];
    for (token, told) in &refusals {
        let mut stranger = membership(1, 2);
        stranger.token = (*token).into();
        let error = refused(start(JoinRole::Member(address), stranger, PATIENCE));
        assert!(matches!(error, JoinError::Refused(refusal) if refusal == *told));
    }
    joined(start(JoinRole::Member(address), membership(1, 2), PATIENCE));
    let leader = joined(leader);
    for (_, told) in refusals {
        let event = next(&leader);
        assert!(matches!(event, ControlEvent::Refused { refusal, .. } if refusal == told));
    }
}

#[test]
fn a_timeout_names_missing_ranks_and_wrong_tokens() {
    let (listener, address) = listener();
    let timeout = Duration::from_secs(2);
    let leader = start(JoinRole::Leader(listener), membership(0, 4), timeout);
    let member = start(JoinRole::Member(address), membership(2, 4), PATIENCE);
    let mut stranger = membership(1, 4);
    stranger.token = "guess".into();
    refused(start(JoinRole::Member(address), stranger, PATIENCE));
    for joining in [leader, member] {
        let error = refused(joining);
        let text = error.to_string();
        assert!(text.contains("after 2s ranks 1 and 3 of 4"), "{text}");
        assert!(text.contains("1 attempt with a wrong token"), "{text}");
    }
}

#[test]
fn a_members_timeout_names_the_missing_ranks() {
    let (listener, address) = listener();
    let leader = start(
        JoinRole::Leader(listener),
        membership(0, 3),
        Duration::from_millis(1500),
    );
    let timeout = Duration::from_millis(700);
    let error = refused(start(JoinRole::Member(address), membership(1, 3), timeout));
    assert!(
        error.to_string().contains("after 700ms rank 2 of 3"),
        "{error}"
    );
    let error = refused(leader);
    assert!(error.to_string().contains("ranks 1 and 2 of 3"), "{error}");
}

#[test]
fn without_rank_0_the_tried_address_is_named() {
    let (listener, address) = listener();
    drop(listener);
    let timeout = Duration::from_millis(300);
    let error = refused(start(JoinRole::Member(address), membership(1, 2), timeout));
    assert!(matches!(error, JoinError::Unreachable { leader, .. } if leader == address));
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[test]
fn a_differing_job_is_named_on_every_rank() {
    let (listener, address) = listener();
    let mut odd = membership(2, 3);
    odd.job.insert("tolerance".into(), "10%".into());
    let joining = [
        start(JoinRole::Leader(listener), membership(0, 3), PATIENCE),
        start(JoinRole::Member(address), membership(1, 3), PATIENCE),
        start(JoinRole::Member(address), odd, PATIENCE),
    ];
    for joining in joining {
        let error = refused(joining).to_string();
        let named = "tolerance is 0% on rank 0 but 10% on rank 2";
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn a_refused_rank_hears_the_reason() {
    let (listener, address) = listener();
    let leader = start(JoinRole::Leader(listener), membership(0, 3), PATIENCE);
    let first = start(JoinRole::Member(address), membership(1, 3), PATIENCE);
    sleep(Duration::from_millis(300));
    let error = refused(start(JoinRole::Member(address), membership(1, 3), PATIENCE));
    let JoinError::Refused(JoinRefusal::DuplicateRank { rank, .. }) = error else {
        panic!("not a duplicate: {error}");
    };
    assert_eq!(rank, Rank(1));
    let error = refused(start(JoinRole::Member(address), membership(2, 4), PATIENCE));
    assert!(
        error.to_string().contains("world size 4 but rank 0 with 3"),
        "{error}"
    );
    let last = joined(start(JoinRole::Member(address), membership(2, 3), PATIENCE));
    let error = refused(start(JoinRole::Member(address), membership(2, 3), PATIENCE));
    assert!(matches!(
        error,
        JoinError::Refused(JoinRefusal::AlreadyStarted { .. })
    ));
    drop((joined(leader), joined(first), last));
}

#[test]
fn impossible_arguments_are_refused_before_any_packet() {
    let (listener, address) = listener();
    let error = refused(start(JoinRole::Member(address), membership(2, 2), PATIENCE));
    assert!(matches!(error, JoinError::RankOutOfRange { .. }));
    let error = refused(start(JoinRole::Member(address), membership(0, 2), PATIENCE));
    assert!(matches!(error, JoinError::WrongRole { .. }));
    let mut nowhere = membership(0, 1);
    nowhere.data_addresses = vec![SocketAddr::from(([0, 0, 0, 0], 4000)).into()];
    let error = refused(start(JoinRole::Leader(listener), nowhere, PATIENCE));
    assert!(matches!(error, JoinError::UnreachableData { .. }));
}

#[test]
fn a_port_in_use_is_named() {
    let (_listener, address) = listener();
    let error = Listener::bind(address).expect_err("taken");
    assert!(matches!(error, BindError::InUse { .. }));
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    let elsewhere = ([192, 0, 2, 1], 0).into();
    let error = Listener::bind(elsewhere).expect_err("a documentation address");
    assert!(matches!(error, BindError::NotThisHost { .. }));
}

#[test]
fn a_dropped_rank_is_lost_to_all_others() {
    let mut ranks = job(3);
    drop(ranks.pop());
    for rank in &ranks {
        let ControlEvent::PeerLost { rank, reason } = next(rank) else {
            panic!("another event");
        };
        assert_eq!(rank, Rank(2));
        assert!(reason.contains("closed without leaving"), "{reason}");
    }
    let barriers = on_all(&ranks, |control| control.barrier(PATIENCE));
    let lost = |result: &Result<(), BarrierError>| {
        matches!(result, Err(BarrierError::PeerLost { rank: Rank(2), .. }))
    };
    assert!(barriers.iter().all(lost), "{barriers:?}");
}

#[test]
fn a_lost_rank_0_is_noticed_by_all_others() {
    let mut ranks = job(3);
    drop(ranks.remove(0));
    for rank in &ranks {
        assert!(matches!(
            next(rank),
            ControlEvent::PeerLost { rank: Rank(0), .. }
        ));
    }
    let left = ranks.pop().expect("two are left").control.leave(PATIENCE);
    assert!(matches!(left, Err(LeaveError::LeaderLost { .. })));
}

#[test]
fn a_silent_rank_is_lost_within_five_seconds() {
    let (listener, address) = listener();
    let leader = start(JoinRole::Leader(listener), membership(0, 3), PATIENCE);
    let other = start(JoinRole::Member(address), membership(1, 3), PATIENCE);
    // A callback that does not return stops the whole control plane of its rank.
    let stall: OnEvent = Box::new(|_| sleep(Duration::from_millis(3500)));
    let silent = spawn(move || join(JoinRole::Member(address), membership(2, 3), PATIENCE, stall));
    let (leader, other) = (joined(leader), joined(other));
    let silent = silent.join().expect("no panic").expect("joins");
    leader.control.abort("to make rank 2 fall silent");
    assert!(matches!(next(&other), ControlEvent::Aborted { .. }));
    for rank in [&leader, &other] {
        let ControlEvent::PeerLost { rank, reason } = next(rank) else {
            panic!("another event");
        };
        assert_eq!(rank, Rank(2));
        assert!(reason.contains("no sign of life"), "{reason}");
    }
    drop(silent);
}

#[test]
fn leaving_waits_for_all_without_losses() {
    let mut ranks = job(3);
    let last = ranks.pop().expect("three");
    let leaving: Vec<_> = ranks.into_iter().map(leave).collect();
    sleep(Duration::from_millis(300));
    assert!(leaving.iter().all(|rank| !rank.is_finished()));
    let leaving = leaving.into_iter().chain([leave(last)]);
    for rank in leaving {
        let (left, events) = rank.join().expect("no panic");
        assert_eq!(left, Ok(()));
        let parted = |event: &ControlEvent| matches!(event, ControlEvent::PeerLeft { .. });
        assert!(events.iter().all(parted), "{events:?}");
    }
}

#[test]
fn a_leave_timeout_names_the_remaining_ranks() {
    let mut ranks = job(2);
    let stays = ranks.pop().expect("two");
    let leaves = ranks.pop().expect("one");
    let waited = Duration::from_millis(200);
    let error = leaves.control.leave(waited).expect_err("rank 1 stays");
    let present = [Rank(1)].into_iter().collect();
    assert_eq!(error, LeaveError::TimedOut { waited, present });
    assert_eq!(next(&stays), ControlEvent::PeerLeft { rank: Rank(0) });
    let later = stays.events.recv_timeout(Duration::from_millis(300));
    assert!(later.is_err(), "a rank that left is not lost: {later:?}");
}

#[test]
fn a_barrier_names_the_missing_ranks() {
    let ranks = job(3);
    let passed = on_all(&ranks, |control| control.barrier(PATIENCE));
    assert_eq!(passed, [Ok(()), Ok(()), Ok(())]);
    let waited = Duration::from_millis(200);
    let late = on_all(&ranks[..2], |control| control.barrier(waited));
    let missing = [Rank(2)].into_iter().collect();
    let error = Err(BarrierError::TimedOut { waited, missing });
    assert_eq!(late, [error.clone(), error]);
}

#[test]
fn an_abort_arrives_although_its_rank_leaves() {
    let mut ranks = job(3);
    let aborts = ranks.remove(1);
    aborts.control.abort("out of memory");
    drop(aborts);
    for rank in &ranks {
        let reason = "out of memory".into();
        assert_eq!(
            next(rank),
            ControlEvent::Aborted {
                rank: Rank(1),
                reason
            }
        );
        assert!(matches!(
            next(rank),
            ControlEvent::PeerLost { rank: Rank(1), .. }
        ));
    }
}

#[test]
fn random_bytes_to_the_port_do_no_harm() {
    let (listener, address) = listener();
    let leader = start(JoinRole::Leader(listener), membership(0, 2), PATIENCE);
    #[expect(clippy::disallowed_methods, reason = "a stranger's socket, in a test")]
    let stranger = UdpSocket::bind(LOOPBACK).expect("loopback has free ports");
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut noise = || {
        let mut bytes = [0; 1500];
        random.fill_bytes(&mut bytes);
        let length = usize::from(u16::from_be_bytes([bytes[0], bytes[1]])) % bytes.len();
        stranger
            .send_to(&bytes[..length], address)
            .expect("loopback takes it");
    };
    (0..200).for_each(|_| noise());
    let member = joined(start(JoinRole::Member(address), membership(1, 2), PATIENCE));
    let ranks = [joined(leader), member];
    (0..200).for_each(|_| noise());
    assert_eq!(
        on_all(&ranks, |control| control.barrier(PATIENCE)),
        [Ok(()), Ok(())]
    );
    assert!(ranks[0].events.try_recv().is_err());
}
