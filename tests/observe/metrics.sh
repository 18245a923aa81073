#!/usr/bin/env bash
# Metrics: 'netvale metrics' and an unmodified Prometheus that scrapes it.
#
# The judges are promtool, for the text, the alerts and their conditions; Prometheus, which accepts every query of the
# dashboard; iperf3, whose datagrams a second must equal rate() within 2 %; and 'netvale show', whose counters must be
# those of the last scrape. Clients that send nothing, too much or nonsense, or do not read, prevent nobody from
# scraping. The daemon stops and starts again. 1,000 ports are scraped; the time is printed.
# measures: yes
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
need promtool prometheus curl iperf3 ping ss

go_before_others

# No other program is in the namespace `watch`: the TCP ports are free.
METRICS=127.0.0.1:9847
PROMETHEUS=http://127.0.0.1:9090

# metrics [OPTION…]: serves the daemon's metrics there. Its process number is in $server.
metrics() {
    background in_space watch "$NETVALE" --run-dir "$run_dir" metrics --listen "tcp:$METRICS" "$@" \
        >>"$work/metrics.log" 2>&1
    server=$!
    wait_for "metrics are served" 10 scrape
}

# scrape [OPTION…]: prints what a client gets.
scrape() {
    in_space watch curl -sS --fail --max-time 10 "$@" "http://$METRICS/metrics"
}

# prometheus: starts Prometheus, which scrapes every second and has the alerts.
prometheus() {
    mkdir -p "$work/prometheus"
    cp "$root/dist/prometheus/netvale.rules.yml" "$work/"
    {
        echo 'global: {evaluation_interval: 1s}'
        sed 's/scrape_interval: .*/scrape_interval: 1s/' "$root/dist/prometheus/prometheus.yml"
    } >"$work/prometheus.yml"
    background in_space watch prometheus --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/prometheus" \
        --web.listen-address="${PROMETHEUS#http://}" >"$work/prometheus.log" 2>&1
    wait_for "Prometheus is ready" 60 in_space watch curl -sS --fail "$PROMETHEUS/-/ready"
}

# asked EXPRESSION [TIME]: the samples in Prometheus's answer, as JSON. Fails with its reason if it has none.
asked() {
    in_space watch curl -sS --get --data-urlencode "query=$1" ${2:+--data-urlencode "time=$2"} \
        "$PROMETHEUS/api/v1/query" >"$work/asked"
    jq -e '.status == "success"' "$work/asked" >/dev/null || fail "Prometheus takes $1" "$(cat "$work/asked")"
    jq -c .data.result "$work/asked"
}

# value EXPRESSION [TIME]: the value, if there is exactly one sample.
value() {
    asked "$@" | jq -r 'if length == 1 then .[0].value[1] else empty end'
}

# true_of EXPRESSION: whether the expression has a sample.
true_of() {
    asked "$1" | jq -e 'length > 0' >/dev/null
}

# The text in both formats, and HTTP.
text() {
    scrape -D "$work/head" >"$work/open"
    grep -qi '^content-type: application/openmetrics-text; version=1.0.0; charset=utf-8' "$work/head" ||
        fail "OpenMetrics" "$(cat "$work/head")"
    [ "$(tail -n 1 "$work/open")" = "# EOF" ] || fail "it ends with EOF" "$(tail -n 3 "$work/open")"
    ok "OpenMetrics, as the content type says"
    scrape -D "$work/head" -H 'Accept: text/plain;version=0.0.4' >"$work/plain"
    grep -qi '^content-type: text/plain; version=0.0.4; charset=utf-8' "$work/head" ||
        fail "the requested format" "$(cat "$work/head")"
    promtool check metrics <"$work/plain" >"$work/checked" 2>&1 ||
        fail "promtool check metrics" "$(cat "$work/checked")"
    [ ! -s "$work/checked" ] || fail "promtool check metrics is silent" "$(cat "$work/checked")"
    nv metrics >"$work/printed"
    promtool check metrics <"$work/printed" >"$work/checked" 2>&1 ||
        fail "promtool check metrics" "$(cat "$work/checked")"
    ok "promtool check metrics accepts what is served and what is printed"
    cmp <(grep '^# TYPE' "$work/plain") <(grep '^# TYPE' "$work/printed") || fail "both have the same families"
    local path
    [ "$(http_status watch "http://$METRICS/")" = 200 ] || fail "/ links to the metrics"
    for path in /metrics/ /metrics/x /metricsx //metrics; do
        [ "$(http_status watch "http://$METRICS$path")" = 404 ] || fail "$path does not exist"
    done
    for method in POST PUT DELETE OPTIONS; do
        [ "$(http_status watch -X "$method" "http://$METRICS/metrics")" = 405 ] || fail "$method is refused"
    done
    [ "$(http_status watch -I "http://$METRICS/metrics")" = 200 ] || fail "HEAD is answered"
    [ "$(http_status watch -H "X: $(printf 'x%.0s' $(seq 9000))" "http://$METRICS/metrics")" = 431 ] ||
        fail "a head of 9,000 bytes is refused"
    [ "$(http_status watch -d x -X GET "http://$METRICS/metrics")" = 413 ] || fail "a body is refused"
    ok "other pages, other methods, long heads and bodies are refused"
}

# Clients that occupy connections: they send nothing or half a request, or do not close.
crowd() {
    local before took
    background in_space watch python3 - "$METRICS" >"$work/crowd" 2>&1 <<'PYTHON'
import socket, sys, time
host, port = sys.argv[1].rsplit(":", 1)
idle = [socket.create_connection((host, int(port))) for _ in range(60)]
for n, one in enumerate(idle):
    try:
        one.sendall([b"", b"GET /met", b"GET /metrics HTTP/1.1\r\n", b"\x16\x03\x01"][n % 4])
    except OSError:
        pass  # It has made room for another one already.
print("all are there", flush=True)
time.sleep(600)
PYTHON
    wait_for "a crowd of 60 connections" 20 grep -q "all are there" "$work/crowd"
    before=$(date +%s%N)
    scrape --max-time 40 >"$work/through" || fail "a scrape succeeds beside the other connections"
    took=$((($(date +%s%N) - before) / 1000000))
    # Clients used to keep their places for two seconds.
    expect "milliseconds until a scrape succeeds beside 60 silent connections" "$took" -lt 1900
    ok "a scrape succeeds beside 60 silent connections, in $took ms"
    kill "$!" 2>/dev/null || true
    expect "threads of the server afterwards" "$(threads)" -le 33
}

# A page whose own host name resolves to this address (DNS rebinding) sends requests under that name.
hosts() {
    local host
    for host in evil.example evil.example:9847 127.0.0.1.evil.example 10.9.8.7 ''; do
        [ "$(http_status watch -H "Host: $host" "http://$METRICS/metrics")" = 421 ] || fail "Host '$host' is refused"
    done
    [ "$(http_status watch -H 'Host: evil.example' "http://$METRICS/")" = 421 ] || fail "so is / under that name"
    for host in localhost:1 127.0.0.1 '[::1]:9847' switch.example:9847; do
        [ "$(http_status watch -H "Host: $host" "http://$METRICS/metrics")" = 200 ] || fail "Host '$host' is answered"
    done
    ok "only requests to this server are answered"
}

threads() {
    sed -n 's/^Threads:\t//p' "/proc/$server/status"
}

# Datagrams of one size at one rate: iperf3's count at the receiver must equal what Prometheus computes from the scrapes
# meanwhile.
rates() {
    local attempt wanted got bytes end seen=
    for attempt in 1 2 3 4 5; do
        iperf 1 2 -u -b 16M -l 1000 -t 14
        # The window is within the traffic.
        end=$(jq '.start.timestamp.timesecs + 12' "$work/iperf.json")
        wanted=$(jq '[.intervals[1:12][].streams[0].packets] | add / length' "$work/iperf.json")
        got=$(value 'rate(netvale_port_frames_total{port="vale0:s2",direction="out"}[10s])' "$end")
        bytes=$(value 'rate(netvale_port_bytes_total{port="vale0:s1",direction="in"}[10s])' "$end")
        # 1042 bytes: with Ethernet, IP and UDP headers.
        if is_near "$got" "$wanted" 0.02 && is_near "$bytes" "$(jq -n "$wanted * 1042")" 0.02; then
            ok "rate() matches iperf3: $got frames of $wanted a second, $bytes bytes"
            return
        fi
        seen+=" $got and $bytes of $wanted;"
    done
    fail "rate() matches iperf3 within 2 %, the best of $attempt attempts" "frames and bytes of frames:$seen"
}

# frames_of PORT DIRECTION: whether Prometheus has the same count as `show`. There is no traffic meanwhile.
frames_of() {
    [ "$(value "netvale_port_frames_total{port=\"vale0:$1\",direction=\"$2\"}")" = "$(moved "$1" "$2" frames)" ]
}

counters() {
    wait_for "frames from s1 are those of 'netvale show'" 15 frames_of s1 in
    wait_for "frames to s2 are those of 'netvale show'" 15 frames_of s2 out
    ok "counters are those of 'netvale show'"
    wait_for "the workers' times add up" 10 true_of \
        'abs(sum without (mode) (rate(netvale_worker_seconds_total[8s])) - 1) < 0.05'
    ok "a worker's busy, polled and slept time are all its time"
    wait_for "batches are counted" 5 true_of 'netvale_port_batches_total{port="vale0:s1",direction="in"} > 100'
    # The counters of filter rules and rate limits.
    nv filter vale0:s1 in drop udp port 7 >/dev/null
    in_space s1 bash -c 'for i in 1 2 3; do echo x >/dev/udp/10.1.0.2/7; done'
    wait_for "a filter's drops" 10 true_of 'netvale_port_drops_by_reason_total{port="vale0:s1",direction="in",reason="filter"} == 3'
    wait_for "are its rule's frames" 10 true_of \
        'netvale_port_rule_frames_total{port="vale0:s1",direction="in",rule="0",action="drop"} == 3'
    ok "drops by reason, and the rules that drop"
    nv link vale0:s2 out delay 1ms >/dev/null
    wait_for "a link" 10 true_of 'netvale_port_link_frames{port="vale0:s2",direction="out"}'
    nv attach vale0 vxlan:100,local=127.0.0.1,remote=127.0.0.9 >/dev/null
    in_space s1 ping -c 2 -i 0.2 -W 0.2 10.1.0.77 >/dev/null 2>&1 || true
    wait_for "frames to another host" 10 true_of \
        'netvale_tunnel_frames_total{port="vale0:vxlan100",vtep="127.0.0.9",direction="out"} > 0'
    ok "links and tunnels"
    detach vxlan100
}

# About one batch in 20 is timed from when timing is enabled until it is disabled.
latencies() {
    local before after
    echo 'latency_sampling = 20' >"$work/timed.toml"
    in_space s1 ping -q -f -c 100 10.1.0.2 >/dev/null || fail "pings"
    scrape >"$work/timed" || fail "a scrape"
    ! grep -q 'latency_seconds_count{' "$work/timed" || fail "nothing is timed unless timing is enabled"
    nv export >"$work/now.toml"
    (cat "$work/timed.toml" "$work/now.toml") >"$work/new.toml"
    must nv apply "$work/new.toml"
    grep -q 'latency_sampling: 0 → 20' "$work/must" || fail "the change is printed" "$(cat "$work/must")"
    before=$(moved s1 in frames)
    in_space s1 ping -q -f -c 4000 10.1.0.2 >/dev/null || fail "pings"
    after=$(moved s1 in frames)
    wait_for "frames were timed" 15 true_of 'netvale_port_latency_seconds_count{port="vale0:s1"} > 50'
    scrape >"$work/timed"
    promtool check metrics < <(scrape -H 'Accept: text/plain;version=0.0.4') >"$work/checked" 2>&1 ||
        fail "promtool check metrics" "$(cat "$work/checked")"
    [ ! -s "$work/checked" ] || fail "promtool check metrics is silent" "$(cat "$work/checked")"
    expect "frames that were timed, of $((after - before))" "$(sed -n 's/^netvale_port_latency_seconds_count{port="vale0:s1".* //p' "$work/timed")" \
        -lt $(((after - before) / 8))
    wait_for "the median is above zero and below 10 ms" 10 true_of \
        '0 < histogram_quantile(0.5, sum by (le) (netvale_port_latency_seconds_bucket{port="vale0:s1"})) < 0.01'
    true_of 'netvale_port_latency_seconds_bucket{port="vale0:s1",le="+Inf"} == ignoring(le) netvale_port_latency_seconds_count{port="vale0:s1"}' ||
        fail "the last bucket counts all frames" "$(cat "$work/asked")"
    must nv apply "$work/now.toml"
    before=$(timed s1)
    in_space s1 ping -q -f -c 200 10.1.0.2 >/dev/null || fail "pings"
    after=$(timed s1)
    [ "$before" -gt 0 ] && [ "$before" = "$after" ] || fail "no frame is timed any more" "$before before, $after after"
    ok "how long frames take: $after were timed"
}

# timed PORT: how many frames of the port were timed, as the daemon itself reports.
timed() {
    nv metrics | sed -n "s/^netvale_port_latency_seconds_count{port=\"vale0:$1\".* //p"
}

alerts_work() {
    in_space watch curl -sS "$PROMETHEUS/api/v1/rules" >"$work/rules"
    jq -c '.data.groups[].rules[] | [.name, .health, .lastError]' "$work/rules"
    jq -e '[.data.groups[].rules[] | .health == "ok"] | length >= 9 and all' "$work/rules" >/dev/null
}

# Prometheus must accept each query of the dashboard; queries about kinds of ports that are not here have no result.
dashboard() {
    local query count=0 said=0
    while IFS= read -r query; do
        query=${query//\$__rate_interval/8s}
        query=$(sed -E 's/\$(instance|switch|port)/.*/g' <<<"$query")
        asked "$query" >"$work/samples"
        count=$((count + 1))
        [ "$(cat "$work/samples")" = "[]" ] || said=$((said + 1))
    done < <(jq -r '.panels[].targets[]?.expr' "$root/dist/grafana/netvale.json")
    expect "queries of the dashboard" "$count" -ge 20
    expect "queries with a result" "$said" -ge 20
    promtool check rules "$root/dist/prometheus/netvale.rules.yml" >"$work/rules" 2>&1 ||
        fail "promtool check rules" "$(cat "$work/rules")"
    promtool test rules "$here/rules.test.yml" >"$work/rules" 2>&1 || fail "promtool test rules" "$(cat "$work/rules")"
    wait_for "Prometheus evaluates the alerts" 20 alerts_work
    ok "alerts: promtool and Prometheus take them, and they fire when they should"
}

# A reader who may not see a port gets no figures of it; one who may not connect gets none at all.
strangers() {
    chmod 711 "$run_dir"
    chmod 666 "$run_dir/control.sock"
    "${as_user[@]}" "$NETVALE" --run-dir "$run_dir" metrics >"$work/theirs"
    ! grep -q '^netvale_port_frames_total{' "$work/theirs" ||
        fail "a stranger's figures have no ports" "$(cat "$work/theirs")"
    grep -q '^netvale_worker_seconds_total{' "$work/theirs" || fail "they have the workers" "$(cat "$work/theirs")"
    chmod 600 "$run_dir/control.sock"
    ! "${as_user[@]}" "$NETVALE" --run-dir "$run_dir" metrics >/dev/null 2>&1 ||
        fail "a user who may not connect gets no figures"
    ok "figures are of the ports that their reader may see"
}

unavailable() {
    [ "$(http_status watch "http://$METRICS/metrics")" = 503 ]
}

# The daemon stops and another one starts; and one does not answer.
comes_and_goes() {
    end_of "$daemon" || true
    # The last figures are served for a tenth of a second.
    wait_for "without a daemon there are no figures" 5 unavailable
    wait_for "Prometheus sees that it is gone" 10 true_of 'up{job="netvale"} == 0'
    start_daemon --rt-priority 10
    wait_for "Prometheus sees that it is back" 10 true_of 'up{job="netvale"} == 1'
    [ "$(grep -c "no counters" "$work/metrics.log")" = 1 ] || fail "the loss of the daemon is logged once" "$(cat "$work/metrics.log")"
    ok "a daemon that stops and starts again"
    kill -STOP "$daemon"
    wait_for "nor if it does not answer" 20 unavailable
    kill -CONT "$daemon"
    wait_for "once it answers, it has" 10 scrape
    ok "a daemon that hangs blocks no client for ever"
}

# Sockets: a UNIX socket with its mode, and sockets that a service manager passes.
sockets() {
    background in_space watch "$NETVALE" --run-dir "$run_dir" metrics --listen "unix:$work/m.sock" --socket-mode 0640 \
        >>"$work/metrics.log" 2>&1
    wait_for "metrics at a UNIX socket" 10 curl -sS --fail --unix-socket "$work/m.sock" http://localhost/metrics
    [ "$(stat -c %a "$work/m.sock")" = 640 ] || fail "its mode" "$(stat -c %a "$work/m.sock")"
    end_of "$!" || true
    [ ! -e "$work/m.sock" ] || fail "its file is removed at the end"
    ok "a UNIX socket"
    command -v systemd-socket-activate >/dev/null || return 0
    background in_space watch systemd-socket-activate -l 127.0.0.1:9848 -l "$work/s.sock" --fdname=metrics:metrics \
        "$NETVALE" --run-dir "$run_dir" metrics >>"$work/metrics.log" 2>&1
    wait_for "metrics at a service manager's port" 10 in_space watch curl -sS --fail http://127.0.0.1:9848/metrics
    curl -sS --fail --unix-socket "$work/s.sock" http://localhost/metrics >/dev/null || fail "and at its UNIX socket"
    end_of "$!" || true
    ok "sockets of a service manager"
}

# 1,000 ports: the time that a client waits for a scrape and the daemon's processor time, over 20 scrapes.
many_ports() {
    local n busy times
    for n in $(seq 1000); do printf '[[port]]\nswitch = "vale%d"\nport = "p%d"\nslots = 2\nextra_bufs = 0\n' $((n / 250)) "$n"; done >"$work/many.toml"
    end_of "$daemon" || true
    start_limit=60 start_daemon --config "$work/many.toml"
    wait_for "they are scraped" 20 scrape
    scrape >"$work/many"
    expect "ports that are scraped" "$(grep -c '^netvale_port_info{' "$work/many")" -eq 1000
    busy=$(cpu_time "$daemon")
    times=$(for n in $(seq 20); do
        # Figures older than this are not served.
        sleep 0.12
        scrape -o /dev/null -w '%{time_total}\n'
    done | sort -n)
    busy=$(($(cpu_time "$daemon") - busy))
    n=$(sed -n 10p <<<"$times")
    ok "1,000 ports, $(wc -c <"$work/many") bytes: a scrape takes $n s (best $(head -n 1 <<<"$times"), worst $(tail -n 1 <<<"$times"))," \
        "the daemon $((busy * 10 / 20)) ms"
    # Ten times what a release build takes, as the machine may be busy.
    jq -en "$n < 0.2" >/dev/null || fail "1,000 ports are scraped in time" "$n s"
}

start_daemon --rt-priority 10
space watch
metrics --host switch.example
for n in 1 2; do station "$n"; done
reaches 1 2
text
hosts
prometheus
wait_for "Prometheus scrapes it" 20 true_of 'up{job="netvale"} == 1'
iperf_server s2
rates
counters
latencies
dashboard
strangers
crowd
comes_and_goes
sockets
many_ports
finish
