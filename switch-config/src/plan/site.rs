//! The switch that a plan is for: its ports and its memory.

use gradwire_fabric::policy::SwitchBuffer;
use gradwire_protocol::units::Rate;

/// A port of the switch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SwitchPort {
    /// Its name, as the platform writes it.
    pub name: String,
    /// Its speed.
    pub rate: Rate,
}

/// Where a plan is for.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// Where plan and policy come from, for the comment at the top: job, fabric, switch.
    pub origin: String,
    /// Ports that get it, in order.
    pub ports: Vec<SwitchPort>,
    /// Packet memory of the switch.
    pub buffer: SwitchBuffer,
}
