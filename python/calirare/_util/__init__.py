"""What every part uses: errors, devices, threads, output, console."""
