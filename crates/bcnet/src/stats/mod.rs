//! `bcnet stats`: shows the rounds that a server has stored.

mod output;

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;
use std::{env, path};

use anyhow::{Context, anyhow, bail, ensure};
use bcnet_control::ColumnSpec;
use bcnet_udp::wall_now;
use serde_json::{Value, json};

use crate::CommandStatus;
use crate::bans::Timestamp;
use crate::config::{self, ConfigFlags, ConfigValue as _};
use crate::file::ensure_not_input;
use crate::number_format::pluralize;
use crate::scores::{
    PlayerResult, PlayerStanding, RoundResult, SECONDS_PER_DAY, ScoreQuery, ScoreStore, StandingOrder,
    SystemTotal,
};
use crate::standard_output;
use output::StatsTable;

#[derive(clap::Args)]
#[command(after_help = "\
A server stores scores if its configuration names a file for them (`scores.file`). Players choose their names freely, and \
the server does not check them. The server cannot see points. It counts kills only with `credit_kills`, as an estimate.

Exit codes: 0 done, 1 no player has that name, 2 there are no scores, or the file cannot be read.

Examples:
  bcnet stats
  bcnet stats players --since 30d --sort time --limit 10
  bcnet stats --file /var/lib/bcnet/scores.db
  bcnet stats rounds --format csv --limit 0 > rounds.csv
  bcnet stats forget \"Jean Luc\"")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<Command>,

    /// The scores file; default: the one in the configuration
    #[arg(long, value_name = "FILE", global = true)]
    file: Option<PathBuf>,

    /// The configuration file; default: BCNET_CONFIG, else bcnet.toml if it exists
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,

    /// Only rounds since this day (UTC), or of the last days: 2026-11-16, or 30d
    #[arg(long, value_name = "DAY", global = true, value_parser = since)]
    since: Option<i64>,

    /// The maximum number of rows; 0: all
    #[arg(long, value_name = "ROWS", global = true, default_value_t = 20)]
    limit: u32,

    /// The output format; parquet needs --output, and a build with the feature `parquet`
    #[arg(long, value_name = "FORMAT", global = true, value_enum, default_value_t = StatsFormat::Table)]
    format: StatsFormat,

    /// Write the output to this file
    #[arg(long, value_name = "OUT", global = true)]
    output: Option<PathBuf>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List the players with the totals of their rounds
    Players {
        /// The column to sort by, the highest value first; names from A to Z
        #[arg(long, value_enum, default_value_t = StandingOrder::Points)]
        sort: StandingOrder,
    },
    /// List the rounds, the latest first
    Rounds,
    /// List the systems, the most played first
    Systems,
    /// Delete all stored results of a player
    ///
    /// The rounds stay in the file, without the player. Logs and captures are separate files and may also
    /// contain the name.
    Forget {
        /// The exact name of the player
        name: String,

        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum StatsFormat {
    Table,
    Csv,
    Json,
    Parquet,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<CommandStatus> {
    let file = match &args.file {
        Some(file) => file.clone(),
        None => configured_file(args.config.clone())?,
    };
    if let Some(out) = &args.output {
        ensure_not_input(out, std::slice::from_ref(&file), "--output")?;
    }
    let range = ScoreQuery { since: args.since, limit: (args.limit > 0).then_some(args.limit) };
    let name = || file.display().to_string();
    let sheet = match args.what.as_ref().unwrap_or(&Command::Players { sort: StandingOrder::Points }) {
        Command::Forget { name, yes } => return forget(&mut ScoreStore::open_existing(&file)?, name, *yes),
        Command::Players { sort } => {
            players_table(&ScoreStore::open_read_only(&file)?.standings(range, *sort).with_context(name)?)
        }
        Command::Rounds => {
            rounds_table(&ScoreStore::open_read_only(&file)?.rounds(range).with_context(name)?)
        }
        Command::Systems => {
            systems_table(&ScoreStore::open_read_only(&file)?.systems(range).with_context(name)?)
        }
    };
    write_table(&sheet, args)?;
    Ok(CommandStatus::Clean)
}

/// Returns the scores file that the configuration names.
fn configured_file(config: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let loaded = config::load(&ConfigFlags { config, ..ConfigFlags::default() }, env::vars_os())
        .context("the configuration does not tell where the scores are; name the file with --file")?;
    let source = loaded.file.as_deref().map(|file| path::absolute(file).unwrap_or_else(|_| file.to_owned()));
    let source =
        source.map_or_else(|| "no configuration was found".into(), |file| file.display().to_string());
    loaded.settings.scores.file.ok_or_else(|| {
        anyhow!(
            "{source}: no `scores.file`, so the server stores no scores; set it, or name a file with --file"
        )
    })
}

fn write_table(sheet: &StatsTable, args: &Args) -> anyhow::Result<()> {
    if args.format == StatsFormat::Parquet {
        let path =
            args.output.as_deref().context("--format parquet: name the file to write with --output")?;
        return output::parquet(sheet, path).with_context(|| path.display().to_string());
    }
    let mut out: Box<dyn Write> = match &args.output {
        None => Box::new(standard_output::lock()),
        Some(path) => {
            Box::new(BufWriter::new(File::create(path).with_context(|| path.display().to_string())?))
        }
    };
    match args.format {
        StatsFormat::Csv => output::csv(sheet, &mut out)?,
        StatsFormat::Json => output::json(sheet, &mut out)?,
        StatsFormat::Table | StatsFormat::Parquet => out.write_all(output::table(sheet).as_bytes())?,
    }
    Ok(out.flush()?)
}

fn forget(store: &mut ScoreStore, name: &str, yes: bool) -> anyhow::Result<CommandStatus> {
    let path = store.path().display().to_string();
    if !yes {
        ensure!(io::stdin().is_terminal(), "this deletes all stored results of a player; confirm with --yes");
        print!("Delete all results of {name:?} from {path}? This cannot be undone. [y/N] ");
        standard_output::lock().flush()?;
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        if !matches!(answer.trim(), "y" | "yes") {
            bail!("the player was not deleted");
        }
    }
    let forgotten = store.delete_player(name).with_context(|| path.clone())?;
    // An unknown player may be the result of an interrupted deletion, so the file is always rewritten.
    store.compact().with_context(|| {
        format!("{path}: the file could not be rewritten, so traces of {name:?} may be left in it; run the command again")
    })?;
    let Some(rounds) = forgotten else {
        eprintln!("bcnet: {path}: no player has the name {name:?}; the name must match exactly");
        return Ok(CommandStatus::Findings);
    };
    println!("deleted {name:?} from {}", pluralize(rounds.unsigned_abs(), "round"));
    Ok(CommandStatus::Clean)
}

fn players_table(standings: &[PlayerStanding]) -> StatsTable {
    let row = |(standing, place): (&PlayerStanding, usize)| {
        let PlayerStanding { rounds, last_played: last, score } = standing;
        let PlayerResult { name, seconds, points, kills, deaths } = score;
        json!({
            "place": place, "name": name, "points": points, "kills": kills, "deaths": deaths, "rounds": rounds,
            "played_s": seconds, "last": timestamp(*last),
        })
    };
    let rows = standings.iter().zip(1..).map(row).collect();
    StatsTable { key: "players", columns: PLAYER_COLUMNS, rows, empty_text: "no players" }
}

fn rounds_table(rounds: &[RoundResult]) -> StatsTable {
    let row = |round: &RoundResult| {
        let players = round.players.iter().map(|player| player.name.as_str());
        json!({
            "ended": timestamp(round.ended), "session": round.session, "port": round.port, "round": round.number,
            "system": round.system, "duration_s": round.seconds, "reason": round.reason,
            "players": players.collect::<Vec<_>>(),
        })
    };
    let rows = rounds.iter().map(row).collect();
    StatsTable { key: "rounds", columns: ROUND_COLUMNS, rows, empty_text: "no rounds" }
}

fn systems_table(systems: &[SystemTotal]) -> StatsTable {
    let row = |SystemTotal { system, rounds, seconds, players }: &SystemTotal| json!({ "system": system, "rounds": rounds, "played_s": seconds, "participants": players });
    let rows = systems.iter().map(row).collect();
    StatsTable { key: "systems", columns: SYSTEM_COLUMNS, rows, empty_text: "no rounds" }
}

fn timestamp(seconds: i64) -> Value {
    Timestamp(seconds.try_into().unwrap_or(0)).to_string().into()
}

/// Parses a day, or a number of days before today. Returns days since 1970.
fn since(text: &str) -> Result<i64, String> {
    if let Ok(moment) = Timestamp::from_text(&format!("{text}T00:00:00Z")) {
        return Ok(moment.0.cast_signed() / SECONDS_PER_DAY);
    }
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok());
    let days = days.ok_or("expected a day such as 2026-11-16, or a number of days such as 30d")?;
    Ok(wall_now().as_secs().cast_signed() / SECONDS_PER_DAY - i64::from(days))
}

const PLAYER_COLUMNS: &[ColumnSpec] = &[
    ("#", "place"),
    ("NAME", "name"),
    ("POINTS", "points"),
    ("KILLS", "kills"),
    ("DEATHS", "deaths"),
    ("ROUNDS", "rounds"),
    ("TIME", "played_s"),
    ("LAST", "last"),
];
const ROUND_COLUMNS: &[ColumnSpec] = &[
    ("ENDED", "ended"),
    ("SESSION", "session"),
    ("PORT", "port"),
    ("ROUND", "round"),
    ("SYSTEM", "system"),
    ("TIME", "duration_s"),
    ("REASON", "reason"),
    ("PLAYERS", "players"),
];
const SYSTEM_COLUMNS: &[ColumnSpec] =
    &[("SYSTEM", "system"), ("ROUNDS", "rounds"), ("TIME", "played_s"), ("PLAYERS", "participants")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_accepts_a_date_or_a_number_of_days() {
        assert_eq!(since("1970-01-02"), Ok(1));
        assert_eq!(since("2026-11-16"), Ok(20_773));
        let today = wall_now().as_secs().cast_signed() / SECONDS_PER_DAY;
        assert!(since("30d").is_ok_and(|day| (today - 30..=today - 29).contains(&day)));
        for text in ["", "d", "30", "-1d", "2026-11-16T12:00:00Z", "yesterday", "99999999999d"] {
            assert!(since(text).is_err(), "{text}");
        }
    }
}
