# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# bash script_run.sh FOLDER SCRIPT VISIBLE COUNT NAME=VALUE… ARGUMENT…: runs SCRIPT with its ARGUMENTS in namespaces of its own, where the
# commands that start programs write down what they were given: a file FOLDER/out/call.TIME.PROCESS for each, its words with a zero byte
# behind each. COUNT says how many NAME=VALUE there are. VISIBLE is a folder that it may read. Where there are neither bubblewrap nor
# namespaces nothing is run, and FOLDER/out/started is not there.
set -u
folder=$1 script=$2 visible=$3 count=$4
shift 4
variables=("${@:1:count}")
shift "$count"
tools=$folder/bin out=$folder/out
mkdir "$tools" "$out"

# Text tools are as they are; what changes files changes those of a file system in memory.
for tool in bash sh cat grep egrep fgrep sed awk gawk mawk head tail cut tr wc sort uniq basename dirname date expr seq env printf echo true false \
  test paste tac nl rev fold column readlink realpath bc id mkdir rm cp mv ln touch chmod ls find tee mktemp; do
  path=$(type -P "$tool") && cp -L "$path" "$tools/$tool"
done
for tool in sleep setpriv umount; do path=$(type -P "$tool") && cp -L "$path" "$tools/.$tool"; done

cat >"$tools/.record" <<'EOF'
#!/bin/bash
# The name of a command, and its words.
for ((i = 2; i <= $#; ++i)); do
  # Of a launcher of a shell what that starts is written down, behind the launcher's own words.
  case ${!i##*/} in
    bash | sh)
      LOCKSTEP_LAUNCHER+=$(printf '%q ' "${@:1:i-1}")
      export LOCKSTEP_LAUNCHER
      exec "${!i##*/}" "${@:i+1}"
      ;;
    *.py | --) break ;;
  esac
done
eval "launcher=(${LOCKSTEP_LAUNCHER-})"
call=$LOCKSTEP_OUT/call.${EPOCHREALTIME/[.,]/}.$$
printf '%s\0' ${launcher[@]+"${launcher[@]}"} "$@" >"$call.part" && mv "$call.part" "$call"
EOF
cat >"$tools/.started" <<'EOF'
#!/bin/bash
exec .record "${0##*/}" "$@"
EOF
cat >"$tools/.gpus" <<'EOF'
#!/bin/bash
case " $* " in
  *" -L "* | *" --list-gpus "* | *query-gpu=name* | *query-gpu=gpu_name* | *query-gpu=index* | *query-gpu=uuid*) ;;
  *) exec .record "${0##*/}" "$@" ;;
esac
: >>"$LOCKSTEP_OUT/gpus"
for ((i = 0; i < 8; ++i)); do echo "GPU $i"; done
EOF
printf '#!/bin/bash\necho localhost\n' >"$tools/.localhost"
printf '#!/bin/bash\n' >"$tools/.nothing"
# What bash reads before each script.
cat >"$tools/.start" <<'EOF'
command_not_found_handle() { .record "$@"; }
cd() { builtin cd "$@" 2>/dev/null || :; }
pushd() { builtin pushd "$@" >/dev/null 2>&1 || :; }
popd() { builtin popd "$@" >/dev/null 2>&1 || :; }
sleep() { :; }
ulimit() { :; }
EOF
chmod 755 "$tools/.record" "$tools/.started" "$tools/.gpus" "$tools/.localhost" "$tools/.nothing"
link() {
  local name
  for name in "${@:2}"; do [[ -e $tools/$name ]] || ln -s "$1" "$tools/$name"; done
}
# Of these a script may ask whether they are there, or they run by a path; all others are written down too.
link .started torchrun python python3 srun mpirun mpiexec deepspeed accelerate ray sbatch sudo nohup timeout numactl nsys setsid stdbuf nice time
link .gpus nvidia-smi
link .localhost hostname scontrol
link .nothing pip pip3 wget curl tar pkill kill killall sync sleep module conda

# A folder in the place of one that the sandbox has itself.
shown=$visible
case $visible/ in
  /tmp/ | /launch/ | /out/ | /dev/* | /proc/* | /usr/* | /lib*/* | /bin/* | /sbin/*) shown=/script script=/script/${script#"$visible"/} ;;
esac
plain=(USER=user LANG=C.UTF-8 LC_ALL=C.UTF-8 HOME=/launch PATH=/usr/bin LOCKSTEP_OUT=/out "${variables[@]+"${variables[@]}"}")
# In the sandbox: the files beside the script and in its repository are there by their names, in folders that can be written to; limits; the
# script; and until those in the background have ended, but not for long.
cat >"$tools/.run" <<'EOF'
cd /launch || exit
: >/out/started
for place in "${2%/*}" "$1"; do
  for file in "$place"/*; do
    if [[ -d $file ]]; then
      mkdir -p "${file##*/}" && for inner in "$file"/*; do [[ -e ${file##*/}/${inner##*/} ]] || ln -s "$inner" "${file##*/}"; done
    elif [[ ! -e ${file##*/} ]]; then
      ln -s "$file" .
    fi
  done
done 2>/dev/null
shift
ulimit -t 10 -f 8192 -v 2000000
BASH_ENV=/usr/bin/.start bash "$@"
status=$?
for ((i = 0; i < 100; ++i)); do
  set -- /proc/[0-9]*
  (($# > 1)) || break
  .sleep 0.02
done
exit "$status"
EOF

if bwrap --unshare-all --ro-bind / / true 2>/dev/null; then
  binds=() hidden=()
  for place in "$visible"/.[!.]*; do
    if [[ -d $place ]]; then hidden+=(--tmpfs "$shown/${place##*/}"); elif [[ -e $place ]]; then hidden+=(--ro-bind /dev/null "$shown/${place##*/}"); fi
  done
  for place in /usr/lib /usr/lib64 /usr/lib32 /lib /lib64; do
    if [[ -L $place ]]; then binds+=(--symlink "$(readlink "$place")" "$place")
    elif [[ -d $place ]]; then binds+=(--ro-bind "$place" "$place"); fi
  done
  exec env -i PATH="$PATH" bwrap --unshare-all --die-with-parent --new-session --clearenv "${binds[@]}" --ro-bind "$tools" /usr/bin \
    --symlink usr/bin /bin --symlink usr/bin /sbin --dev /dev --proc /proc --tmpfs /tmp --dir /launch --bind "$out" /out \
    --ro-bind "$visible" "$shown" "${hidden[@]+"${hidden[@]}"}" --chdir /launch env -i "${plain[@]}" bash /usr/bin/.run "$shown" "$script" "$@"
fi
[[ -e $tools/.setpriv && -e $tools/.umount ]] && type -P pivot_root mount >/dev/null || exit 0
export folder tools out visible shown
# shellcheck disable=SC2016
exec unshare --user --map-root-user --mount --net --pid --fork --kill-child --ipc --uts bash -c '
  set -e
  root=$folder/root
  mkdir "$root"
  mount -t tmpfs -o size=64m tmpfs "$root"
  cd "$root"
  mkdir -p usr/bin usr/lib tmp dev proc launch out old ".$shown"
  show() { mount --bind "$1" "$2"; mount -o remount,bind,ro "$2" 2>/dev/null || mount -o remount,bind,ro,nosuid,nodev "$2"; }
  for place in /usr/lib /usr/lib64 /usr/lib32 /lib /lib64; do
    if [[ -L $place ]]; then ln -s "$(readlink "$place")" ".$place"; elif [[ -d $place ]]; then mkdir -p ".$place"; show "$place" ".$place"; fi
  done
  show "$tools" usr/bin
  ln -s usr/bin bin
  ln -s usr/bin sbin
  mount --bind "$out" out
  show "$visible" ".$shown"
  # What is hidden there, as .git and .ssh, is not shown.
  for place in "$visible"/.[!.]*; do
    if [[ -d $place ]]; then mount -t tmpfs -o ro tmpfs ".$shown/${place##*/}"
    elif [[ -e $place ]]; then mount --bind /dev/null ".$shown/${place##*/}"; fi
  done
  mount -t proc proc proc
  for file in null zero; do touch "dev/$file"; mount --bind "/dev/$file" "dev/$file"; done
  ln -s /proc/self/fd dev/fd
  for i in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${i%:*}" "dev/${i#*:}"; done
  pivot_root . old
  cd /
  /usr/bin/.umount -l /old
  environment=("${@:2:$1}")
  shift "$(($1 + 1))"
  # Root of these namespaces may do nothing more than anybody else.
  exec /usr/bin/.setpriv --bounding-set=-all --inh-caps=-all --no-new-privs /usr/bin/env -i "${environment[@]}" /usr/bin/bash /usr/bin/.run "$shown" "$@"
' script_run "${#plain[@]}" "${plain[@]}" "$script" "$@"
