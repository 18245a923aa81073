#!/usr/bin/env bash
# The browser page: `netvale web`, with a daemon that has traffic and drops, in a headless Chromium at the widths of a
# desktop and a phone.
#
# The page must show what `netvale show` reports, and update it; it must never scroll sideways; its console must be
# empty. A capture is downloaded by the browser and by curl, and read by tcpdump. Requests without the token, from other
# pages or under other host names are refused, and clients that send nothing, do not read or take many captures keep
# nobody from viewing the page. Names from the daemon that contain markup are displayed as text. NETVALE_PICTURES=FOLDER
# saves screenshots there.
# measures: no
# shellcheck source=SCRIPTDIR/../lib.sh
. "$(dirname "$0")/../lib.sh"
need chromium curl tcpdump /usr/bin/python3

PAGE=http://127.0.0.1:9848

# web NAME [OPTION…]: serves the page for the daemon in $work/NAME (`.`: the script's own). Its output is in
# $work/NAME/url, its process number in $server.
web() {
    local name=$1
    shift
    background in_space watch "$NETVALE" --run-dir "$work/$name/run" web "$@" >"$work/$name/url" 2>>"$work/web.log"
    server=$!
    wait_for "the page of $name is served" 10 grep -q '^http' "$work/$name/url"
}

# api PATH [OPTION…]: requests it with the token, as the page does.
api() {
    local path=$1
    shift
    in_space watch curl -sS --max-time 30 -H "Authorization: Bearer $token" "$@" "$PAGE/api/$path"
}

# refused WHAT STATUS OPTION…: the request must get that status.
refused() {
    local what=$1 wanted=$2 got
    shift 2
    got=$(http_status watch "$@" "$PAGE/api/stats")
    [ "$got" = "$wanted" ] || fail "$what is refused with $wanted" "got $got"
    ok "$what is refused ($wanted)"
}

strangers() {
    local with=(-H "Authorization: Bearer $token") file
    [ "$(http_status watch "${with[@]}" "$PAGE/api/stats")" = 200 ] || fail "a client with the token gets figures"
    refused "a request without the token" 401
    refused "one with a wrong token" 401 -H "Authorization: Bearer ${token%?}x"
    refused "one with the token where it is logged" 401 -G -d "token=$token"
    refused "another page's" 403 "${with[@]}" -H 'Origin: http://evil.example'
    refused "that of a page without an origin" 403 "${with[@]}" -H 'Origin: null'
    refused "that of a page on another port" 403 "${with[@]}" -H 'Origin: http://127.0.0.1:9999'
    refused "what a browser says is another site's" 403 "${with[@]}" -H 'Sec-Fetch-Site: cross-site'
    refused "one under a name that was made to point here" 421 "${with[@]}" -H 'Host: evil.example:9848'
    [ "$(http_status watch -H 'Host: evil.example' "$PAGE/")" = 421 ] || fail "nor is the page served under that name"
    refused "a preflight" 405 -X OPTIONS -H 'Origin: http://evil.example' -H 'Access-Control-Request-Method: GET'
    refused "a form" 405 -X POST -d x=y
    for file in / /main.js /nothing /api/stats; do
        in_space watch curl -sS -o /dev/null -D - "$PAGE$file" >"$work/head"
        grep -qi "^content-security-policy: default-src 'none'" "$work/head" ||
            fail "$file has a policy" "$(cat "$work/head")"
        ! grep -qi '^access-control' "$work/head" || fail "$file is for no other page" "$(cat "$work/head")"
    done
    ok "each answer has its content policy, and no other page may read one"
    refuses "a token that everybody can read" 1 'other users of this host can read' web --token-file "$work/open" \
        --listen tcp:127.0.0.1:1
    ! grep -q "$token" "$work/web.log" || fail "the token is in no log" "$(cat "$work/web.log")"
}

# The token is in a file for those who may read it, and not in the output.
token_files() {
    local first=$server
    web . --listen tcp:127.0.0.1:9849 --token-file "$work/token"
    [ "$(stat -c %a "$work/token")" = 600 ] || fail "the token's file is for its user" "$(stat -c %a "$work/token")"
    ! grep -q "$(cat "$work/token")" "$work/url" || fail "a token in a file is not printed" "$(cat "$work/url")"
    [ "$(http_status watch -H "Authorization: Bearer $(cat "$work/token")" http://127.0.0.1:9849/api/stats)" = 200 ] ||
        fail "the file has the token"
    end_of "$server" || true
    server=$first
    ok "a token in a file"
}

frames_in() {
    tcpdump -n -r "$1" 2>"$work/tcpdump" | wc -l
}

captures() {
    api 'capture?port=vale0%3Atx&way=both&seconds=30&frames=500&snaplen=0' --fail -o "$work/some.pcapng" ||
        fail "a capture"
    expect "frames of a capture that ends with so many" "$(frames_in "$work/some.pcapng")" -eq 500
    api 'capture?port=vale0%3Arx&way=sent&seconds=1&frames=500&snaplen=0' --fail -o "$work/none.pcapng" ||
        fail "a capture without ports"
    expect "frames of one that ends with its time" "$(frames_in "$work/none.pcapng")" -eq 0
    [ "$(api 'capture?port=netmap%3Alo&way=both&seconds=1&frames=1&snaplen=0' -o /dev/null -w '%{http_code}')" = 404 \
        ] ||
        fail "an interface that is not a port is not captured"
    ok "an interface that is not a port is not captured"
}

# Clients that occupy connections and send nothing, or start captures and do not read them.
crowd() {
    background in_space watch /usr/bin/python3 - "$token" >"$work/crowd" 2>&1 <<'PYTHON'
import socket, sys, time
def say(text):
    one = socket.create_connection(("127.0.0.1", 9848))
    one.sendall(text.encode())
    return one
capture = ("GET /api/capture?port=vale0%3Atx&way=both&seconds=300&frames=1000000&snaplen=0 HTTP/1.1\r\nHost: localhost\r\n"
           f"Authorization: Bearer {sys.argv[1]}\r\n\r\n")
many = [say(capture) for _ in range(4)]
heads = [one.recv(12) for one in many]
print(heads, flush=True)
more = say(capture)
print("one more:", more.recv(12), flush=True)
idle = [say(("", "GET /ap", "GET / HTTP/1.1\r\n")[n % 3]) for n in range(60)]
print("all are there", flush=True)
time.sleep(600)
PYTHON
    local them=$!
    wait_for "a crowd" 20 grep -q "all are there" "$work/crowd"
    [ "$(grep -o 'HTTP/1.1 200' "$work/crowd" | wc -l)" = 4 ] || fail "four captures at a time" "$(cat "$work/crowd")"
    grep -q "one more: b'HTTP/1.1 429'" "$work/crowd" || fail "a fifth capture is refused" "$(cat "$work/crowd")"
    api stats --max-time 60 >"$work/through" || fail "figures get through a crowd"
    expect "threads of the server" "$(sed -n 's/^Threads:\t//p' "/proc/$server/status")" -le 33
    wait_for "a client that does not read its capture is disconnected" 40 no_monitors
    kill -- "-$them"
    ok "clients that send nothing or do not read are disconnected"
}

no_monitors() {
    ! nv list | grep -q monitor
}

start_daemon --latency-sampling 5
space watch
background nv pkt-gen -i vale0:slow -f rx >/dev/null 2>&1
slow=$!
wait_for "one that will not read" 10 is slow '.state == "open"'
kill -STOP "$slow"
background nv pkt-gen -i vale0:rx -f rx >/dev/null 2>&1
wait_for "a receiver" 10 is rx '.state == "open"'
background nv pkt-gen -i vale0:tx -f tx -R 5000 >/dev/null 2>&1
wait_for "traffic" 60 has_got rx 1000
wait_for "drops" 20 has_dropped slow no-room 1
nv filter vale0:slow in drop udp port 53 >/dev/null
for n in 1 2 3 4 5 6; do nv attach vale1 "p$n" >/dev/null; done
nv attach vale1 "vhost:$run_dir/guest.sock" --name guest >/dev/null
touch "$work/open" && chmod 644 "$work/open"

web .
address=$(cat "$work/url")
token=${address#*#token=}
strangers
token_files
captures

in_space watch /usr/bin/python3 "$here/web.py" figures "$address" "$work" >"$work/page" 2>&1 ||
    fail "the page" "$(cat "$work/page")"
cat "$work/page"
expect "frames of a capture by the browser" "$(frames_in "$work"/downloads/vale0-tx-*.pcapng)" -eq 200
crowd

mkdir -p "$work/odd/run"
background in_space watch /usr/bin/python3 "$here/odd_daemon.py" "$work/odd/run/control.sock" >"$work/odd.log" 2>&1
wait_for "a daemon with odd names" 10 test -S "$work/odd/run/control.sock"
web odd --listen tcp:127.0.0.1:9850
in_space watch /usr/bin/python3 "$here/web.py" odd "$(cat "$work/odd/url")" "$work" >"$work/page" 2>&1 ||
    fail "odd names" "$(cat "$work/page")" "$(cat "$work/odd.log")"
cat "$work/page"
finish
