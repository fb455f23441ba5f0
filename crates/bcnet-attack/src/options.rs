//! The command line.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Parser;
use serde_json::json;

use crate::attacks::{ATTACKS, Attack};
use crate::metrics::{AttackResult, AttackSkipped};
use crate::sandbox::Sandbox;
use bcnet_udp::Clock;

#[derive(Parser)]
#[command(
    name = "bcnet-attack",
    about = "Attack a bcnet server, proxy or list server that this program starts itself, and measure its victims",
    after_help = "\
Attacks take place in a network namespace that the program makes for itself, so that any source address can be forged and \
nothing leaves the machine; that needs root, or a system that lets users make namespaces, and `ip` of iproute2. With \
--loopback they take place at 127.0.0.0/8, and those that forge addresses are skipped. Nothing else can be attacked.

Each attack ends by itself. Figures of the victims stand beside those without the attack, and beside the bar that they \
must not pass. They mean little on a machine that has other things to do.

Exit codes: 0 all bars hold, 1 a bar is broken, 2 could not run.

Examples:
  bcnet-attack list
  bcnet-attack all --quick
  bcnet-attack restart-flood --rate 3000 --seconds 20 --bcnet target/release/bcnet
  bcnet-attack all --minutes 10 --json > attacks.json"
)]
struct Args {
    /// Attacks by name, `all` of them, or `list` to see what there is
    #[arg(required = true, value_name = "ATTACK")]
    attacks: Vec<String>,

    /// The program to attack; else `bcnet` beside this one
    #[arg(long, value_name = "PATH")]
    bcnet: Option<PathBuf>,

    /// How long the victims measure, each time, in seconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,

    /// The same in minutes
    #[arg(long, conflicts_with_all = ["seconds", "quick"], value_parser = clap::value_parser!(u64).range(1..=60))]
    minutes: Option<u64>,

    /// Measure for 4 seconds each time, with few tries to join
    #[arg(long, conflicts_with = "seconds")]
    quick: bool,

    /// Datagrams per second of attacks that flood; else as each says
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: Option<u32>,

    /// Where random numbers begin: the same seed, the same attack
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Further settings of the server, such as session.prove=ack; may be given more than once
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Only the cases of an attack whose name has this in it, such as "40 networks"; `replace-player`, `take-slots` and
    /// `keep-out` have cases
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,

    /// Stay at 127.0.0.0/8 instead of making a network namespace; attacks that forge addresses are skipped
    #[arg(long)]
    loopback: bool,

    /// The address at which the attacked program listens: any in the namespace, one of 127.0.0.0/8 with --loopback
    #[arg(long, value_name = "ADDRESS")]
    at: Option<Ipv4Addr>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What all attacks go by.
#[derive(Debug, Clone)]
pub(crate) struct Environment {
    pub(crate) sandbox: Sandbox,
    pub(crate) clock: Clock,
    pub(crate) bcnet: PathBuf,
    /// How long victims measure.
    pub(crate) measure_time: Duration,
    /// How often a newcomer tries to join.
    pub(crate) tries: u16,
    pub(crate) rate: Option<u32>,
    /// What the names of cases must have in them.
    pub(crate) case: Option<String>,
    pub(crate) seed: u64,
    /// Further settings of the server.
    pub(crate) set: Vec<String>,
}

impl Environment {
    /// Returns the rate that was asked for, or the usual one.
    pub(crate) fn rate(&self, usual: u32) -> u32 {
        self.rate.unwrap_or(usual)
    }

    /// Returns whether a case of an attack is wanted.
    pub(crate) fn is_selected(&self, case: &str) -> bool {
        self.case.as_ref().is_none_or(|wanted| case.contains(wanted.as_str()))
    }

    /// Tells on standard error what is going on.
    pub(crate) fn progress(&self, attack: &str, what: &str) {
        eprintln!("{:>6.1} s  {attack}: {what}", self.clock.now().as_micros() as f64 / 1e6);
    }
}

pub(crate) fn run() -> ExitCode {
    let args = Args::parse();
    match run_attacks(&args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("bcnet-attack: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run_attacks(args: &Args) -> anyhow::Result<ExitCode> {
    if args.attacks.iter().any(|name| name == "list") {
        for Attack { name, description: does, .. } in ATTACKS {
            println!("{name:<18} {does}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = select_attacks(&args.attacks)?;
    let bcnet = find_program(args.bcnet.clone())?;
    let time = match args.minutes {
        Some(minutes) => Duration::from_secs(60 * minutes),
        None if args.quick => Duration::from_secs(4),
        None => Duration::from_secs(args.seconds),
    };
    let env = Environment {
        sandbox: Sandbox::enter(args.loopback, args.at)?,
        clock: Clock::start(),
        bcnet,
        measure_time: time,
        tries: if args.minutes.is_some() { 100 } else { (time.as_secs() as u16).clamp(4, 100) },
        rate: args.rate,
        case: args.case.clone(),
        seed: args.seed,
        set: args.set.clone(),
    };
    let mut outcomes = Vec::new();
    for attack in chosen {
        env.progress(attack.name, attack.description);
        let outcome = run_one(&env, attack)?;
        if !args.json {
            println!("{outcome}");
        }
        outcomes.push(outcome);
    }
    let broken: Vec<&str> = outcomes.iter().filter(|one| one.is_broken()).map(|one| one.attack).collect();
    if args.json {
        let outcomes: Vec<_> = outcomes.iter().map(AttackResult::json).collect();
        println!(
            "{}",
            json!({ "seed": args.seed, "seconds": time.as_secs(), "broken": broken, "attacks": outcomes })
        );
    } else if !broken.is_empty() {
        println!("broken: {}", broken.join(", "));
    }
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn run_one(env: &Environment, attack: &'static Attack) -> anyhow::Result<AttackResult> {
    let result = if attack.needs_forging && !env.sandbox.can_forge() {
        Err(AttackSkipped(
            "it forges addresses, which needs a network namespace: run it without --loopback".into(),
        ))
    } else {
        Ok((attack.run)(env).with_context(|| attack.name)?)
    };
    Ok(AttackResult { attack: attack.name, result })
}

fn select_attacks(names: &[String]) -> anyhow::Result<Vec<&'static Attack>> {
    let mut chosen = Vec::new();
    for name in names {
        if name == "all" {
            chosen.extend(ATTACKS);
        } else if let Some(attack) = ATTACKS.iter().find(|attack| attack.name == name) {
            chosen.push(attack);
        } else {
            bail!("no attack {name}; `bcnet-attack list` shows all");
        }
    }
    Ok(chosen)
}

/// Returns the program to attack, which must be there, as an absolute path: it is run in another directory.
fn find_program(given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let beside = || -> anyhow::Result<PathBuf> { Ok(std::env::current_exe()?.with_file_name("bcnet")) };
    let path = given.map_or_else(beside, Ok)?;
    path.canonicalize().with_context(|| {
        format!(
            "{}: no such program; --bcnet names it, `cargo build --release -p bcnet` makes it",
            path.display()
        )
    })
}
