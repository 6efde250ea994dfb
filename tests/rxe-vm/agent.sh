#!/bin/bash
# Runs commands in the guest for the harness, several at a time. It speaks over a virtio serial
# port, which stays up whatever is done to the network.
#
# From the harness, a line each:     run ID SECONDS COMMAND…    kill ID    end
# To the harness:                    ready
#                                    done ID STATUS BYTES       and then that many bytes of output
set -u
output_bytes_max=262144

port=
for entry in /sys/class/virtio-ports/*; do
  [ "$(cat "$entry/name")" = agent ] && port=/dev/${entry##*/}
done
[ -n "$port" ] || { echo "agent: no port named agent"; exit 1; }
exec 3<>"$port"
lock=/run/agent.lock

run() {
  local id=$1 seconds=$2 command=$3 output=/run/agent.$1
  timeout --kill-after=2 "$seconds" bash -c "$command" >"$output" 2>&1 </dev/null 3>&- &
  local child=$!
  echo "$child" >"$output.pid"
  wait "$child"
  local status=$?
  tail -c "$output_bytes_max" "$output" >"$output.tail"
  # One answer at a time.
  { flock 9
    printf 'done %s %s %s\n' "$id" "$status" "$(stat -c %s "$output.tail")"
    cat "$output.tail"
  } 9>"$lock" >&3
  rm -f "$output" "$output.tail" "$output.pid"
}

echo ready >&3
while read -r verb id rest <&3; do
  case $verb in
    run) run "$id" "${rest%% *}" "${rest#* }" & ;;
    kill) [ -e "/run/agent.$id.pid" ] && kill "$(cat "/run/agent.$id.pid")" 2>/dev/null ;;
    end) break ;;
  esac
done
