#!/usr/bin/env bash
# A worker in bash: claims one job at a time, renews its lease, reports how it ended. Needs curl and jq.
#
#   HEADWAY_URL=http://127.0.0.1:8080 HEADWAY_TOKEN=hw_… LANES=main ./worker.sh [handlers.sh]
#
# A handler is a function handle_KIND. It reads the job's arguments from standard input and writes its
# result to standard output as JSON. Any status but 0 fails the attempt, with its standard error as the error.

url=${HEADWAY_URL:-http://127.0.0.1:8080}
lanes=${LANES:-main}
lease=${LEASE:-30}      # seconds
worker="bash-$(hostname)-$$-$RANDOM$RANDOM"
work=$(mktemp -d)
stopping=''
trap 'stopping=yes' TERM INT
trap 'rm -rf "$work"' EXIT

handle_greet() { jq -c '{said: ("Hello, " + .name)}'; }

# shellcheck disable=SC1090
[ -n "${1:-}" ] && source "$1"

# call PATH SECONDS <BODY: sets $answer to the reply and $status to its status; 000 means no reply.
call() {
    # The token is passed through a file descriptor: all users of the machine can see a program's arguments.
    curl --silent --max-time "$2" --data-binary @- --output "$work/answer" --write-out '%{http_code}' \
        --header 'Content-Type: application/json' \
        --config <(printf 'header = "Authorization: Bearer %s"\n' "${HEADWAY_TOKEN:-}") \
        "$url/v1/$1" <&0 >"$work/status" &
    local curl=$!
    while ! wait "$curl"; do
        kill -0 "$curl" 2>/dev/null || break
        # On a stop signal a waiting claim is abandoned; jobs that it gets are handed back.
        [ "$1" = claims ] && kill "$curl"
    done
    status=$(cat "$work/status")
    answer=$(cat "$work/answer" 2>/dev/null)
    case $status in
    401 | 403) echo "not allowed: $(jq -r .detail <<<"$answer")" >&2 && exit 1 ;;
    esac
}

# settle <OUTCOME; not as an argument, whose size the system limits.
settle() {
    local tries
    jq -c --arg worker "$worker" '{worker: $worker, outcomes: [.]}' >"$work/settlement"
    for tries in 1 2 4 8; do
        call settlements 30 <"$work/settlement"
        [ "$status" = 200 ] && return
        echo "settle: $status $answer" >&2
        sleep "$tries"
    done
}

# beat JOB RUN: false if the job no longer belongs to this worker, or was cancelled.
beat() {
    call leases 10 < <(jq -n --arg worker "$worker" --arg lease "${lease}s" --arg job "$1" \
        --argjson run "$2" '{worker: $worker, lease: $lease, running: [{job: $job, run: $run}]}')
    [ "$status" != 200 ] || jq -e '.lost == [] and .cancel == []' <<<"$answer" >/dev/null
}

run() {
    local job run kind outcome handler tick
    job=$(jq -r .id <<<"$1") run=$(jq -r .run <<<"$1") kind=$(jq -r .kind <<<"$1")
    outcome=$(jq -c '{job: .id, run: .run}' <<<"$1")
    if ! declare -F "handle_$kind" >/dev/null; then
        settle < <(jq -c --arg error "no handler for $kind" '. + {outcome: "failed", error: $error}' <<<"$outcome")
        return
    fi
    rm -f "$work"/{ended,result,error}
    set -m      # in a process group of its own, so that all of it can be stopped
    (jq -c .args <<<"$1" | "handle_$kind" >"$work/result" 2>"$work/error"; echo "$?" >"$work/ended") &
    handler=$!
    set +m
    while [ ! -e "$work/ended" ]; do
        sleep "$((lease / 3))" & tick=$!
        wait -n "$handler" "$tick"
        kill "$tick" 2>/dev/null
        kill -0 "$handler" 2>/dev/null || [ -e "$work/ended" ] || echo 137 >"$work/ended"
        if [ ! -e "$work/ended" ] && ! beat "$job" "$run"; then
            kill -- "-$handler"
            echo 143 >"$work/ended"
            echo 'asked to stop' >"$work/error"
        fi
    done
    if [ "$(cat "$work/ended")" = 0 ] && ! jq . "$work/result" >/dev/null 2>"$work/error"; then
        echo 1 >"$work/ended"
    fi
    if [ "$(cat "$work/ended")" = 0 ]; then
        settle < <(jq -c --slurpfile result "$work/result" \
            '. + {outcome: "succeeded", result: $result[0]}' <<<"$outcome")
    else
        settle < <(jq -c --rawfile error "$work/error" '. + {outcome: "failed", error: $error}' <<<"$outcome")
    fi
}

while [ -z "$stopping" ]; do
    call claims 40 < <(jq -n --arg worker "$worker" --arg lanes "$lanes" --arg lease "${lease}s" \
        '{worker: $worker, lanes: $lanes, lease: $lease, wait: "25s"}')
    if [ "$status" = 200 ]; then
        run_these=$(jq -c '.jobs[]' <<<"$answer")
        [ -n "$run_these" ] && run "$run_these"
    elif [ -z "$stopping" ]; then
        echo "claim: $status $answer" >&2
        sleep 2
    fi
done
call leases 10 < <(jq -n --arg worker "$worker" '{worker: $worker, running: [], leaving: true}')
