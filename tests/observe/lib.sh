# shellcheck shell=bash disable=SC2317
# Shared by the scripts of this folder: metrics, and a Prometheus that scrapes them, in a namespace of their own. Sourced by bash.
# shellcheck source=SCRIPTDIR/../policies/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../policies/lib.sh"

# Nobody else is in the namespace: the ports are free.
METRICS=127.0.0.1:9847
PROMETHEUS=http://127.0.0.1:9090

# metrics [OPTION…]: serves the daemon's figures in the namespace `watch`. Its number is in $server.
metrics() {
    background in_watch "$NETVALE" --run-dir "$run_dir" metrics --listen "tcp:$METRICS" "$@" >>"$work/metrics.log" 2>&1
    server=$!
    wait_for "metrics are served" 10 scrape
}

# The process itself, so that its number is the program's.
in_watch() {
    exec ip netns exec "nvp$$-watch" "$@"
}

# scrape [OPTION…]: what a client gets.
scrape() {
    in_space watch curl -sS --fail --max-time 10 "$@" "http://$METRICS/metrics"
}

# status [OPTION…]: the status of an answer.
status() {
    in_space watch curl -s --max-time 20 -o /dev/null -w '%{http_code}' "$@" || true
}

# prometheus: scrapes each second, and has the alerts.
prometheus() {
    mkdir -p "$work/prometheus"
    cp "$root/dist/prometheus/netvale.rules.yml" "$work/"
    {
        echo 'global: {evaluation_interval: 1s}'
        sed 's/scrape_interval: .*/scrape_interval: 1s/' "$root/dist/prometheus/prometheus.yml"
    } >"$work/prometheus.yml"
    background in_watch prometheus --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/prometheus" \
        --web.listen-address="${PROMETHEUS#http://}" >"$work/prometheus.log" 2>&1
    wait_for "Prometheus is ready" 60 in_space watch curl -sS --fail "$PROMETHEUS/-/ready"
}

# asked EXPRESSION [TIME]: the samples that Prometheus answers with, as JSON. It says why when it does not.
asked() {
    in_space watch curl -sS --get --data-urlencode "query=$1" ${2:+--data-urlencode "time=$2"} "$PROMETHEUS/api/v1/query" >"$work/asked"
    jq -e '.status == "success"' "$work/asked" >/dev/null || fail "Prometheus takes $1" "$(cat "$work/asked")"
    jq -c .data.result "$work/asked"
}

# value EXPRESSION [TIME]: the value, if there is one sample.
value() {
    asked "$@" | jq -r 'if length == 1 then .[0].value[1] else empty end'
}

# true_of EXPRESSION: whether a sample is left of it.
true_of() {
    asked "$1" | jq -e 'length > 0' >/dev/null
}
