//! A host of a reference transport that carries the workload's flows, and those that its own
//! program begins.
//!
//! The transport does not know programs: a message is one more flow to it.

use std::collections::VecDeque;

use gradwire_protocol::units::Instant;

use super::player::MessagePlayer;
use crate::engine::host::{Begin, Envelope, Host, HostProgress};
use crate::results::outcome::{TaskOutcome, TransportCounts};

/// A host that may run a program.
#[derive(Debug)]
pub struct Programmed<H> {
    carrier: H,
    player: Option<Box<MessagePlayer>>,
    /// Flows below this number are the workload's.
    first_message: u32,
    told: VecDeque<HostProgress>,
}

impl<H: Host> Programmed<H> {
    /// A host whose flows `carrier` carries; those from number `first_message` on are of programs.
    pub(crate) fn new(carrier: H, player: Option<MessagePlayer>, first_message: u32) -> Self {
        Self {
            carrier,
            player: player.map(Box::new),
            first_message,
            told: VecDeque::new(),
        }
    }

    /// Hands the progress of its flows to the program, and begins the flows that follow.
    fn settle(&mut self, now: Instant) {
        let Some(player) = &mut self.player else {
            return;
        };
        let mut any = false;
        while let Some(progress) = self.carrier.progress() {
            match progress {
                HostProgress::Received { flow, .. } if flow >= self.first_message => {
                    player.received(now, flow);
                }
                HostProgress::Acknowledged { flow } if flow >= self.first_message => {
                    player.acknowledged(now, flow);
                }
                other => {
                    self.told.push_back(other);
                    continue;
                }
            }
            any = true;
        }
        if any {
            self.go_on(now);
        }
    }

    fn go_on(&mut self, now: Instant) {
        let Some(player) = &mut self.player else {
            return;
        };
        player.go_on(now);
        while let Some(begin) = player.next_begin() {
            self.carrier.begin(now, begin);
        }
        self.told.extend(std::iter::from_fn(|| player.progress()));
    }
}

impl<H: Host> Host for Programmed<H> {
    type Cargo = H::Cargo;

    fn begin(&mut self, now: Instant, begin: Begin) {
        self.carrier.begin(now, begin);
        self.settle(now);
    }

    fn receive(&mut self, now: Instant, envelope: &Envelope, cargo: &mut Self::Cargo) {
        self.carrier.receive(now, envelope, cargo);
        self.settle(now);
    }

    fn wake(&mut self, now: Instant) {
        if self.carrier.wakes_at().is_some_and(|at| at <= now) {
            self.carrier.wake(now);
            self.settle(now);
        }
        let player = self.player.as_ref().and_then(|player| player.wakes_at());
        if player.is_some_and(|at| at <= now) {
            self.go_on(now);
        }
    }

    fn wakes_at(&self) -> Option<Instant> {
        let player = self.player.as_ref().and_then(|player| player.wakes_at());
        self.carrier.wakes_at().into_iter().chain(player).min()
    }

    fn transmit(&mut self, now: Instant, cargo: &mut Self::Cargo) -> Option<Envelope> {
        self.carrier.transmit(now, cargo)
    }

    fn progress(&mut self) -> Option<HostProgress> {
        match self.player {
            None => self.carrier.progress(),
            Some(_) => self.told.pop_front(),
        }
    }

    fn tasks(&self) -> Vec<TaskOutcome> {
        let player = self.player.as_ref();
        player.map_or_else(Vec::new, |player| player.outcomes())
    }

    fn counts(&self) -> TransportCounts {
        self.carrier.counts()
    }
}
