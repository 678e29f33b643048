//! `gradwire switch`: the configuration of switches, from a job and a fabric.
//!
//! [`site`] makes the plan; the other files are one command each. What platforms are told is in
//! `gradwire-switch-config`.
