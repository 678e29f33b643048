//! Workloads: the result of every pattern and file, and the errors of wrong ones.

mod arrivals;
mod checks;
mod connection_matrices;
mod grid;
mod layers;
mod line;
mod mixed;
mod models;
mod patterns;
mod samples;
mod schedules;
mod traces;
mod training;
