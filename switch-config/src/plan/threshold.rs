//! Depths of queues in the units of a platform.

use gradwire_protocol::units::ByteCount;

use super::error::PlanError;
use crate::limits::{Thresholds, Unit};
use crate::target::SwitchTarget;

/// A threshold as the platform can write it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Threshold {
    /// Lower threshold, in units.
    pub low: u64,
    /// Upper threshold, in units: above it every packet is marked or dropped.
    pub high: u64,
    /// The unit.
    pub unit: Unit,
    /// Memory of a port that percents are of.
    pub port_bytes: ByteCount,
    /// The depth before rounding: share x rate x RTT.
    pub exact: ByteCount,
}

impl Threshold {
    /// A number of units in bytes.
    fn bytes(&self, units: u64) -> u64 {
        match self.unit {
            Unit::Bytes(size) => units * size,
            Unit::PercentOfPort => self.port_bytes.get() * units / 100,
        }
    }

    /// The lower threshold in bytes.
    pub fn low_bytes(&self) -> u64 {
        self.bytes(self.low)
    }

    /// The upper threshold in bytes.
    pub fn high_bytes(&self) -> u64 {
        self.bytes(self.high)
    }
}

/// A depth that is to be written in a platform's units.
pub(super) struct Rounding {
    pub(super) exact: ByteCount,
    pub(super) port_bytes: ByteCount,
    pub(super) thresholds: Thresholds,
}

impl Rounding {
    /// The lower threshold is the depth rounded down, the upper one as little above it as can be:
    /// a step, as nearly as the platform has it.
    pub(super) fn threshold(&self, target: SwitchTarget) -> Result<Threshold, PlanError> {
        let Thresholds {
            unit,
            least,
            most,
            apart,
        } = self.thresholds;
        let exact = self.exact.get();
        if exact > self.port_bytes.get() {
            return Err(PlanError::AboveBuffer {
                exact: self.exact,
                port_bytes: self.port_bytes,
            });
        }
        let units = match unit {
            Unit::Bytes(size) => exact / size,
            Unit::PercentOfPort => exact * 100 / self.port_bytes.get().max(1),
        };
        let low = units.max(least);
        let high = low + apart;
        if high > most {
            return Err(PlanError::Threshold {
                target,
                exact: self.exact,
                most,
            });
        }
        Ok(Threshold {
            low,
            high,
            unit,
            port_bytes: self.port_bytes,
            exact: self.exact,
        })
    }
}
