//! The machine that runs plans: from a submitted operation to its completion.
//!
//! - [`communicator`]: the machine itself. `running` is one operation on its way, `table` finds the
//!   one that a packet belongs to.
//! - `matching`: which send answers which receive. `agreement`: whether ranks call the same
//!   operations. [`overdue`]: the questions that ranks ask each other when one takes too long.
//! - [`scheduler`], `departures`: which message leaves next, and how many are on their way.
//! - `memory`, `stash`, `parity`, `plan_cache`, `phases`, `patience`: state kept between
//!   packets, operations and steps.
//! - `failures`: lost ranks and aborts. [`limits`]: how much is remembered. [`journal`]: when
//!   messages came and went.

mod agreement;
pub mod communicator;
mod departures;
mod failures;
pub mod journal;
pub mod limits;
mod matching;
mod memory;
pub mod overdue;
mod parity;
mod parts;
mod patience;
mod phases;
mod plan_cache;
mod planner;
mod promises;
mod running;
pub mod scheduler;

mod stash;
mod table;
