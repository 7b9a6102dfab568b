//! The pages of a simulated federation: one for the coordinator, one for each client.

use dpsgd::Error;
use dpsgd::privacy::account::Question;
use dpsgd::report::curve::{CurveRun, Tradeoff};
use dpsgd::report::html::{self, Figure};
use dpsgd::report::rounding::up;
use dpsgd::report::text::{number, subscript, thousands};

use super::answer::Answer;
use crate::report::{Clock, MOST_ROWS, and_more, described, over_time, shares, staleness};
use crate::status::Status;

/// The page of the coordinator: timeline, staleness, accuracy, and the share of each client.
pub(super) fn coordinator(answer: &Answer) -> String {
    let terms = answer.federation.terms();
    let status = Status::of(terms, &answer.finished.state);
    let data = format!("{}, {}", answer.federation.data, answer.federation.split);
    let body = format!(
        "<h1>A simulated federation</h1>\n{}{}{}{}{}",
        html::list(&answer.statement().lines().map(str::to_string).collect::<Vec<_>>()),
        html::section("Over time", &html::figures(&over_time(&answer.measured, Clock::VIRTUAL))),
        html::section("Staleness and shares", &html::figures(&[staleness(&status), shares(&status)])),
        html::section("Clients", &clients(answer)),
        html::section("Terms", &html::table(&[], &described(terms, &[("Data", data)]))),
    );
    let footer = "A simulation with a seed is reproducible and not private; the guarantees are those of the \
                  same clients with random keys.";
    html::page("A simulated federation", &body, footer)
}

fn clients(answer: &Answer) -> String {
    let header = ["client", "rounds charged", "sent", "accepted", "rejected", "interrupts", "restarts", "ε"];
    let rows: Vec<Vec<String>> = answer
        .finished
        .clients
        .iter()
        .enumerate()
        .take(MOST_ROWS)
        .map(|(i, client)| {
            let standing = answer.finished.state.clients.get(&crate::ClientId(i as u64 + 1));
            let accepted = standing.map_or(0, |standing| standing.accepted);
            let rejected: u64 = standing.map_or(0, |standing| standing.rejected.values().sum());
            let given = answer.accounts[i].against(answer.adversary());
            let counts =
                [client.charged, client.sent, accepted, rejected, client.interrupts, client.restarts];
            let mut row = vec![(i + 1).to_string()];
            row.extend(counts.map(thousands));
            row.push(given.map_or("–".into(), |given| format!("≤ {}", up(given.answer.upper, 4))));
            row
        })
        .collect();
    html::wide_table(&header.map(str::to_string), &rows) + &and_more(answer.finished.clients.len())
}

/// The page of a client: its own guarantee.
pub(super) fn client(answer: &Answer, i: usize) -> Result<String, Error> {
    let (account, settings) = (&answer.accounts[i], &answer.federation.settings[i]);
    let outcome = &answer.finished.clients[i];
    let asked = match account.question {
        Question::Epsilon { delta } => format!("at δ = {}", number(delta)),
        Question::Delta { epsilon } => format!("at ε = {}", number(epsilon)),
    };
    let rows: Vec<Vec<String>> = account
        .guarantees
        .iter()
        .map(|given| {
            let quantity = match account.question {
                Question::Epsilon { .. } => "ε",
                Question::Delta { .. } => "δ",
            };
            vec![
                subscript(given.adversary).to_string(),
                format!("{quantity} ≤ {} {asked}", up(given.answer.upper, 4)),
                given.basis.clone(),
            ]
        })
        .collect();
    let run = CurveRun {
        name: String::new(),
        mechanism: &account.mechanism,
        question: account.question,
        alphas: &settings.alphas,
    };
    let svg = Tradeoff::of(&[run])?.svg();
    let figure =
        Figure { svg, caption: "Any attack's miss rate at each false-alarm rate is above the curve.".into() };
    let said = [
        format!(
            "{} rounds are charged to this client's ledger, {} of their updates were sent.",
            thousands(outcome.charged),
            thousands(outcome.sent)
        ),
        "The guarantee holds against the server, whoever carries the messages, and all other clients together, \
         whatever models they send: a received model changes where a round starts, and the guarantee holds for \
         every start."
            .to_string(),
        "It covers one record of this client. Somebody with records at several clients is covered by the \
         composition of their guarantees."
            .to_string(),
    ];
    let body = format!(
        "<h1>Client {} of a federation</h1>\n{}{}{}",
        i + 1,
        html::section("What leaves", &html::list(&said)),
        html::section("Guarantee", &html::table(&["against", "bound", "by"].map(str::to_string), &rows)),
        html::section("Trade-off", &figure.html(false)),
    );
    let footer = "Simulated with a seed: reproducible, not private.";
    Ok(html::page(&format!("Client {}", i + 1), &body, footer))
}
