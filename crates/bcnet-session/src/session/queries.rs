//! Queries of browsers and heartbeats to list servers ([S-05] to [S-09]).
//!
//! [S-05]: bcnet_transport::wire::protocol#s-05
//! [S-09]: bcnet_transport::wire::protocol#s-09

use std::net::SocketAddrV4;

use bcnet_transport::{Engine, Time};

use super::Session;
use crate::event::Event;
use crate::heartbeats::heartbeat;
use crate::network::any_contains;
use crate::query::{Query, ReplyBuilder, challenge_response};
use crate::query_limiter::QueryOrigin;

impl<E: Engine> Session<E> {
    /// S-05, S-07: handles a query of a browser or a list server.
    pub(super) fn on_query(&mut self, from: SocketAddrV4, text: &[u8], now: Time) {
        self.counters.queries += 1;
        if let Some(master) = self.masters.on_datagram(from, now) {
            self.emit(Event::MasterSeen { master });
        }
        let Some(query) = Query::parse(text) else { return };
        if self.closing {
            return;
        }
        match self.answer_query(from, &query, now) {
            Some(datagrams) => {
                self.counters.queries_answered += 1;
                self.gamespy_outbox.extend(datagrams.into_iter().map(|datagram| (from, datagram)));
            }
            None => self.counters.queries_limited += 1,
        }
    }

    /// S-07: returns the reply, if the limits allow one to `from`.
    fn answer_query(&mut self, from: SocketAddrV4, query: &Query<'_>, now: Time) -> Option<Vec<Vec<u8>>> {
        let address = *from.ip();
        let origin = if any_contains(&self.config.trusted, address) {
            QueryOrigin::Trusted
        } else if self.masters.contains(address) {
            QueryOrigin::ListServer
        } else if any_contains(&self.config.home_networks, address) {
            QueryOrigin::Home
        } else {
            QueryOrigin::Unverified
        };
        let rate = self.config.query_rate;
        if self.gamespy_outbox.len() >= MAX_GAMESPY_OUTBOX
            || !self.query_limiter.allow_query(origin, address, rate, now)
        {
            return None;
        }
        let datagrams = self.build_reply(query);
        let bytes = datagrams.iter().map(Vec::len).sum();
        self.query_limiter.allow_reply(origin, address, bytes, rate, now).then_some(datagrams)
    }

    /// S-06: builds the reply, with its pairs in the order of the stock game.
    fn build_reply(&mut self, query: &Query<'_>) -> Vec<Vec<u8>> {
        let mut reply = ReplyBuilder::new(self.next_query_id);
        self.next_query_id = self.next_query_id.wrapping_add(1).max(1);
        if query.basic {
            reply.pair("gamename", "bcommander").pair("gamever", "60").pair("location", "1");
        }
        if query.info {
            self.write_info(&mut reply);
        }
        if query.rules {
            self.write_rules(&mut reply);
        }
        if query.players {
            let host = self.config.list_host_as_player.then_some("Dedicated Server");
            let names = host.into_iter().chain(self.listed_names());
            let max_name = reply.value_limit(names.clone().count());
            for (index, name) in names.enumerate() {
                reply.truncated_pair(&format!("player_{index}"), name, max_name);
            }
        }
        if let Some(text) = query.echo {
            reply.raw_pair("echo", text);
        }
        if let Some(challenge) = query.secure {
            reply.pair("validate", &challenge_response(challenge));
        }
        reply.finish()
    }

    fn write_info(&self, reply: &mut ReplyBuilder) {
        let config = &self.config;
        let lock = if config.password.is_some() { "*" } else { "" };
        reply
            .pair("hostname", &format!("{lock}{}", config.name))
            .pair("missionscript", &self.rules.mission.script)
            .pair("mapname", &self.rules.mission.short_name)
            .pair("numplayers", &self.listed_names().count().to_string())
            .pair("maxplayers", &config.max_players().to_string())
            .pair("gamemode", if self.round.is_over() { "settings" } else { "openplaying" });
    }

    fn write_rules(&self, reply: &mut ReplyBuilder) {
        let config = &self.config;
        let limit = |limit: Option<u8>, none: i32| limit.map_or(none, i32::from).to_string();
        reply
            .pair("timelimit", &limit(config.valid_time_limit(), -1))
            .pair("fraglimit", &limit(config.frag_limit, -2))
            .pair("system", self.round.system.name())
            .pair("password", if config.password.is_some() { "1" } else { "0" });
    }

    /// Returns the names of the listed players: those with a name and a slot.
    fn listed_names(&self) -> impl Iterator<Item = &str> + Clone {
        let listed = self.members.iter().flatten().filter(|member| member.slot.is_some());
        listed.filter_map(|member| member.name.as_deref())
    }

    /// S-09: sends the heartbeats that are due, and reports list servers that are lost.
    pub(super) fn send_heartbeats(&mut self, now: Time) {
        while let Some(master) = self.masters.poll_lost(now) {
            self.emit(Event::MasterLost { master });
        }
        while self.gamespy_outbox.len() < MAX_GAMESPY_OUTBOX
            && let Some(master) = self.masters.poll_heartbeat(now)
        {
            self.counters.heartbeats += 1;
            self.gamespy_outbox.push_back((master, heartbeat(self.config.advertise_port)));
        }
    }
}

/// The most GameSpy texts that wait to be sent.
const MAX_GAMESPY_OUTBOX: usize = 256;
