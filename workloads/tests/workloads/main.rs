//! Workloads: what every pattern and file becomes, and what is said of those that are wrong.

mod arrivals;
mod checks;
mod connection_matrices;
mod layers;
mod models;
mod patterns;
mod samples;
mod schedules;
mod traces;
mod training;
