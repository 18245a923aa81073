# guide-page.awk: reads a page of the guide, and extracts what is run of it:
# `awk -v folder=FOLDER -v user=USER -f guide-page.awk PAGE`.
#
# Each block that this user runs is written to FOLDER/LINE, the list of them to FOLDER/plan, and the reasons for not
# running the others to FOLDER/ignored. Violations of the rules in CONTRIBUTING.md are printed, and the exit status is
# then 1. Without `user`, the page's users are printed, and the rules are checked.

function fail(what) { print FILENAME ":" FNR ": " what; failed = 1 }

# The words by which the page calls a user.
function shown_as(name) { return name == "user" ? "ordinary user" : name }

function reads(list, name,    parts, i, n, found) {
    n = split(list, parts, ",")
    for (i = 1; i <= n; i++) {
        if (parts[i] !~ /^(root|member|user|rootless)$/) fail("there is no user " parts[i])
        else if (!(parts[i] in users)) fail("the page is not for " shown_as(parts[i]))
        if (name == "" && tolower(text) !~ ("(^|[^a-z])" shown_as(parts[i]) "s?([^a-z]|$)")) fail("the text before the block does not say that it is for: " shown_as(parts[i]))
        found = found || parts[i] == name
    }
    return found
}

# Runs as: root · a member of the group `netvale` · an ordinary user … · rootless …
function runs_as(list,    parts, i, n, name) {
    n = split(list, parts, / · /)
    for (i = 1; i <= n; i++) {
        if (parts[i] ~ /^rootless/) name = "rootless"
        else if (parts[i] ~ /^root/) name = "root"
        else if (parts[i] ~ /^a member of the group `netvale`/) name = "member"
        else if (parts[i] ~ /^an ordinary user/) name = "user"
        else { fail("nobody is called: " parts[i]); continue }
        users[name] = parts[i]
        if (user == "") {
            inside = shell = ""
            if (match(parts[i], /`unshare [^`]*`/)) shell = substr(parts[i], RSTART + 1, RLENGTH - 2)
            print name "|" (parts[i] ~ /nothing of netvale is installed/ ? "bare" : "installed") "|" shell
        }
    }
    known_users = 1
}

function word(name,    i) {
    for (i = 1; i <= words; i++) if (info[i] == name || index(info[i], name "=") == 1) return substr(info[i], length(name) + 2) ""
    return ""
}
function has(name,    i) {
    for (i = 1; i <= words; i++) if (info[i] == name) return 1
    return 0
}

# The first line of a block: decides what is done with it.
function begin(    all, rest, i) {
    all = substr($0, 4)
    line = FNR; kind = ""; until = ""; take = 0
    if (match(all, / until=.*/)) { until = substr(all, RSTART + 7); all = substr(all, 1, RSTART - 1) }
    words = split(all, info, " ")
    if (words == 0) { fail("a block has no language"); return }
    for (i = 2; i <= words; i++)
        if (info[i] !~ /^(run|ignore|background|silent|eventually|(status|for|as|at|file)=[^ ]+)$/) fail("there is no mark " info[i])
    if (info[1] ~ /^(sh|bash|shell|console)$/ && !has("run") && !has("ignore") && word("file") == "") { fail("a block of commands says neither run nor ignore"); return }
    if (!known_users && (has("run") || word("file") != "")) { fail("the page does not say before its first block for whom it is (Runs as: …)"); return }
    if (has("ignore")) { kind = "ignore"; expect = FNR; return }
    if (word("file") != "") {
        kind = "file"
        if (index(text, word("file")) == 0) fail("the text before the block does not name the file " word("file"))
    } else if (!has("run")) return
    else if (info[1] == "console") kind = "console"
    else if (word("at") != "") kind = "typed"
    else if (has("background")) kind = "terminal"
    else kind = "plain"
    if (kind == "terminal" && text !~ /terminal/) fail("the text before the block does not say that it takes a terminal of its own")
    if (kind == "terminal" && until == "" && !has("silent")) fail("the block does not say by what its reader sees that it has begun (until=…), or that nothing is seen (silent)")
    if (kind != "terminal" && (until != "" || word("as") != "")) fail("only a terminal of its own has until= and as=")
    if (kind == "typed" && text !~ /guest/) fail("the text before the block does not say in which guest it is typed")
    if (word("for") != "" && user == "") reads(word("for"), "")
    if (user != "" && (word("for") == "" || reads(word("for"), user))) {
        take = 1
        print line "|" kind "|" (word("status") == "" ? 0 : word("status")) "|" has("eventually") "|" word("as") word("at") word("file") "|" until > (folder "/plan")
        printf "" > (folder "/" line)
        count += kind != "file"
    }
    total += kind != "file"
}

/^Runs as: / && !inside_block { runs_as(substr($0, 10)) }
/^```/ && !inside_block { inside_block = 1; begin(); next }
inside_block && /^```/ { if (take) close(folder "/" line); inside_block = 0; blank = 1; next }
inside_block { if (take) print > (folder "/" line); next }
/<!-- *run/ { fail("a block that the reader does not see") }
# The paragraph after a block that is not run contains the reason.
expect && NF {
    if ($0 !~ /^\*Not run here: .*\*$/) fail("the text after the block of line " expect " does not begin with *Not run here:*, and a reason")
    else if (user != "") print FILENAME ":" expect ": " substr($0, 16, length($0) - 16) > (folder "/ignored")
    expect = 0
}
# Text: the paragraph before a block; for several blocks in a row, the one before the first.
NF { text = blank ? $0 : text " " $0; blank = 0; next }
{ blank = 1 }
END {
    if (inside_block) fail("a block has no end")
    if (expect) fail("the last block does not say why it is not run")
    if (user == "" && total == 0) fail("no block of the page is run")
    if (user == "" && !known_users) fail("the page does not say for whom it is (Runs as: …)")
    if (user != "" && count == 0) fail("nothing of the page is run as " user)
    exit failed
}
