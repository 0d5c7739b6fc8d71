# SPDX-License-Identifier: Apache-2.0
# bash script_run.sh FOLDER SCRIPT VISIBLE COUNT NAME=VALUE… ARGUMENT…: runs SCRIPT with its ARGUMENTS where the commands
# that start programs write down what they were given, into FOLDER/out/calls: for each the number of its words and the
# words, with a zero byte behind each. COUNT says how many NAME=VALUE there are. VISIBLE is a folder that it may read.
# FOLDER/out/mode says where it ran: "bubblewrap", "unshare", or "nothing" where neither is there.
set -u
folder=$1 script=$2 visible=$3 count=$4
shift 4
variables=("${@:1:count}")
shift "$count"
tools=$folder/bin out=$folder/out
mkdir "$tools" "$out"

mode=nothing
spaces=(unshare --user --map-root-user --mount --net --pid --fork --kill-child --ipc --uts)
if bwrap --unshare-all --ro-bind / / true 2>/dev/null; then
  mode=bubblewrap
elif "${spaces[@]}" true 2>/dev/null; then
  mode=unshare
fi
printf '%s' "$mode" >"$out/mode"

# Text tools are as they are; what changes files is so only where there are none but its own.
harmless=(bash sh cat grep egrep fgrep sed awk gawk mawk head tail cut tr wc sort uniq basename dirname date expr seq env printf echo
  true false test paste tac nl rev fold column readlink realpath bc id)
[[ $mode == nothing ]] || harmless+=(mkdir rm cp mv ln touch chmod ls find tee mktemp)
for tool in "${harmless[@]}"; do
  path=$(type -P "$tool") && cp -L "$path" "$tools/$tool"
done
cp -L "$(type -P sleep)" "$tools/.sleep"

cat >"$tools/.record" <<'EOF'
#!/bin/bash
name=${0##*/}
for ((i = 1; i <= $#; ++i)); do
  # A launcher of a shell: what that starts is written down.
  case ${!i##*/} in
    bash | sh) exec "${!i##*/}" "${@:i+1}" ;;
    *.py | --) break ;;
  esac
done
printf '%s\0' "$(($# + 1))" "$name" "$@" >>"$LOCKSTEP_OUT/calls"
EOF
cat >"$tools/.gpus" <<'EOF'
#!/bin/bash
: >>"$LOCKSTEP_OUT/gpus"
for ((i = 0; i < 8; ++i)); do echo "GPU $i: a GPU"; done
EOF
printf '#!/bin/bash\necho localhost\n' >"$tools/.localhost"
printf '#!/bin/bash\n' >"$tools/.nothing"
# What bash reads before each script.
cat >"$tools/.start" <<'EOF'
command_not_found_handle() { :; }
cd() { builtin cd "$@" 2>/dev/null || :; }
pushd() { builtin pushd "$@" >/dev/null 2>&1 || :; }
popd() { builtin popd "$@" >/dev/null 2>&1 || :; }
sleep() { :; }
ulimit() { :; }
EOF
chmod 755 "$tools/.record" "$tools/.gpus" "$tools/.localhost" "$tools/.nothing"
link() {
  local name
  for name in "${@:2}"; do [[ -e $tools/$name ]] || ln -s "$1" "$tools/$name"; done
}
link .record torchrun python python3 srun mpirun mpiexec deepspeed accelerate ray sbatch pdsh docker singularity apptainer enroot sudo \
  nohup timeout numactl nsys setsid stdbuf nice time
link .gpus nvidia-smi rocm-smi
link .localhost hostname scontrol
link .nothing mkdir rm cp mv ln touch chmod ls find tee mktemp git pip pip3 wget curl tar pkill kill killall ps sync free lscpu which nproc

plain=(USER=user LANG=C.UTF-8 LC_ALL=C.UTF-8)
# shellcheck disable=SC2016
start='ulimit -t 10 -f 32768 -v 2000000; bash "$0" "$@"; status=$?; .sleep 0.1; exit "$status"'
# With processes of their own: until those in the background have ended, but not for long.
# shellcheck disable=SC2016
[[ $mode == nothing ]] || start='ulimit -t 10 -f 32768 -v 2000000; bash "$0" "$@"; status=$?
  for ((i = 0; i < 100; ++i)); do set -- /proc/[0-9]*; (($# > 1)) || break; .sleep 0.02; done; exit "$status"'
# Where nothing can be written to them, what lies beside the script and in its repository is there by its name.
# shellcheck disable=SC2016
links='for file in "${0%/*}"/* "$LOCKSTEP_SEES"/*; do [[ -e ${file##*/} ]] || ln -s "$file" .; done; unset LOCKSTEP_SEES file; '
case $mode in
  nothing)
    mkdir "$folder/work" && cd "$folder/work" || exit
    exec env -i "${plain[@]}" HOME="$folder/work" PATH="$tools" BASH_ENV="$tools/.start" LOCKSTEP_OUT="$out" ${variables[@]+"${variables[@]}"} \
      "$tools/bash" -c "$start" "$script" "$@"
    ;;
  bubblewrap)
    binds=()
    for place in /usr/lib /usr/lib64 /usr/lib32 /lib /lib64; do
      if [[ -L $place ]]; then binds+=(--symlink "$(readlink "$place")" "$place")
      elif [[ -d $place ]]; then binds+=(--ro-bind "$place" "$place"); fi
    done
    exec bwrap --unshare-all --die-with-parent --clearenv "${binds[@]}" --ro-bind "$tools" /usr/bin --symlink usr/bin /bin --symlink usr/bin /sbin \
      --dev /dev --proc /proc --tmpfs /tmp --dir /work --bind "$out" /out --ro-bind "$visible" "$visible" --chdir /work \
      env -i "${plain[@]}" HOME=/work PATH=/usr/bin BASH_ENV=/usr/bin/.start LOCKSTEP_OUT=/out LOCKSTEP_SEES="$visible" \
      ${variables[@]+"${variables[@]}"} bash -c "$links$start" "$script" "$@"
    ;;
  unshare)
    export folder tools out visible start links
    # shellcheck disable=SC2016
    exec "${spaces[@]}" bash -c '
      set -e
      root=$folder/root
      mkdir "$root"
      mount -t tmpfs -o size=64m tmpfs "$root"
      cd "$root"
      mkdir -p usr/bin usr/lib tmp dev proc work out ".$visible"
      shown() { mount --bind "$1" "$2"; mount -o remount,bind,ro "$2" 2>/dev/null || mount -o remount,bind,ro,nosuid,nodev "$2"; }
      for place in /usr/lib /usr/lib64 /usr/lib32 /lib /lib64; do
        if [[ -L $place ]]; then ln -s "$(readlink "$place")" ".$place"; elif [[ -d $place ]]; then mkdir -p ".$place"; shown "$place" ".$place"; fi
      done
      shown "$tools" usr/bin
      ln -s usr/bin bin
      ln -s usr/bin sbin
      mount --bind "$out" out
      shown "$visible" ".$visible"
      mount -t proc proc proc
      for file in null zero; do touch "dev/$file"; mount --bind "/dev/$file" "dev/$file"; done
      ln -s /proc/self/fd dev/fd
      for i in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${i%:*}" "dev/${i#*:}"; done
      chroot=$(type -P chroot) env=("${@:2:$1}")
      shift "$(($1 + 1))"
      exec "$chroot" . /usr/bin/env -i "${env[@]}" /usr/bin/bash -c "builtin cd /work; $links$start" "$@"
    ' script_run "$((${#plain[@]} + 5 + count))" "${plain[@]}" HOME=/work PATH=/usr/bin BASH_ENV=/usr/bin/.start LOCKSTEP_OUT=/out \
      LOCKSTEP_SEES="$visible" ${variables[@]+"${variables[@]}"} "$script" "$@"
    ;;
esac
